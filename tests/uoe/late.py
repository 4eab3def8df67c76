#!/usr/bin/env python3
"""Programs that know nothing of Weft: one sends datagrams at a pace, the other says how late the latest one came.

    late.py send PORT COUNT SIZE ADDRESS        one each 2 ms, with the time in it
    late.py receive PORT ADDRESS

The receiver says "port N", and when an "end" has come a line of JSON: how many came, how many were damaged, by how many
milliseconds the median was later than the fastest, and by how many the latest one came behind one that was sent after
it. That a machine stands still for a while makes no datagram come behind another. Both use the same clock.
"""
import json
import socket
import struct
import sys
import time

HEAD = struct.Struct("!Id")
PACE = 0.002


def send(port, count, size, address):
    to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    to.connect((address, port))
    begun = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begun + number * PACE - time.monotonic()))
        try:
            to.send(HEAD.pack(number, time.monotonic()) + bytes([number & 255]) * (size - HEAD.size))
        except ConnectionRefusedError:
            pass
    # A loss takes one of these at most.
    for _ in range(5):
        time.sleep(0.3)
        to.send(b"end")
    print(json.dumps({"sent": count}), flush=True)


def receive(port, address):
    at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    at.bind((address, port))
    print("port", at.getsockname()[1], flush=True)
    took, damaged, seen, newest, behind = [], 0, set(), 0.0, 0.0
    while (octets := at.recv(70000)) != b"end":
        number, sent = HEAD.unpack_from(octets)
        took.append(time.monotonic() - sent)
        newest = max(newest, sent)
        behind = max(behind, newest - sent)
        damaged += octets[HEAD.size:] != bytes([number & 255]) * (len(octets) - HEAD.size) or number in seen
        seen.add(number)
    took.sort()
    times = {"median": took[len(took) // 2] - took[0], "behind": behind}
    print(json.dumps({"came": len(took), "damaged": damaged,
                      **{name: round(1000 * time, 1) for name, time in times.items()}}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(*map(int, sys.argv[2:5]), sys.argv[5])
    else:
        receive(int(sys.argv[2]), sys.argv[3])
