#!/usr/bin/env python3
"""A program that knows nothing of Weft: takes numbered datagrams in one of the ways programs wait, and says what came.

    receive.py HOW [PORT] [ADDRESS]     HOW: recv, timeout, poll, select, epoll, edge, connected, connected-epoll,
                                        answer, filtered, scattered, shared, slow, rests, kept, threads

Says "port N", and when a datagram "end" has come a line of JSON: how many came, how many were damaged, twice or out of
order of their sender, from which addresses, and how many of each sender, fewest first. `connected` and
`connected-epoll` connect to the first sender, `answer` sends each back, `filtered` has a filter that takes all,
`scattered` receives into forty buffers, `shared` lets others have its port, `slow` rests after each, `rests` a shorter
time. `kept` receives into one buffer, of which nothing may change behind a datagram; of `threads` three receive, among
which nothing has an order.
"""
import ctypes
import json
import select
import socket
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor

how, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
by_epoll = how in ("epoll", "edge", "connected-epoll")
at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
at.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10 if how in ("slow", "rests") else 4 << 20)
if how == "shared":
    at.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
at.bind((sys.argv[3] if len(sys.argv) > 3 else "127.0.0.1", port))
print("port", at.getsockname()[1], flush=True)
came, damaged, disordered, last, each, first_at = 0, 0, 0, {}, {}, None
polled = select.poll()
polled.register(at, select.POLLIN)
epoll = select.epoll()
epoll.register(at, select.EPOLLIN | (select.EPOLLET if how == "edge" else 0))
if how == "filtered":
    # linux/filter.h: BPF_RET of more octets than a datagram has; a program of one instruction, and where it is.
    program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x40000))
    SO_ATTACH_FILTER = 26
    at.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))
FILLED = b"\xee" * 3000
memory = bytearray(FILLED)
if how == "timeout":
    at.settimeout(0.5)
if by_epoll:
    at.setblocking(False)


def wait():
    if how == "poll":
        polled.poll()
    elif how == "select":
        select.select([at], [], [])
    elif by_epoll:
        epoll.poll()


def take():
    """One datagram; nothing where there is none after all."""
    try:
        if how == "scattered":
            buffers = [bytearray(7) for _ in range(40)]
            octets, _, _, source = at.recvmsg_into(buffers)
            return b"".join(buffers)[:octets], source
        if how == "kept":
            octets, source = at.recvfrom_into(memory)
            taken = bytes(memory[:octets]) if memory[octets:] == FILLED[octets:] else bytes(7)
            memory[:] = FILLED
            return taken, source
        return at.recvfrom(70000)
    except (BlockingIOError, TimeoutError):
        return None


def take_with_others():
    """Takes datagrams until one says that it is over; gives those, and has the next thread end as well."""
    taken = []
    while (one := at.recvfrom(70000))[0] != b"end":
        taken.append(one)
    at.sendto(b"end", at.getsockname())
    return taken


is_over = how == "threads"
if is_over:
    with ThreadPoolExecutor(3) as pool:
        taken = sum((each.result() for each in [pool.submit(take_with_others) for _ in range(3)]), [])
    numbers = {int.from_bytes(octets[:4], "big") for octets, _ in taken}
    came, disordered, last = len(taken), len(taken) - len(numbers), {source: 0 for _, source in taken}
    damaged = sum(octets[4:] != bytes([octets[3]]) * (len(octets) - 4) for octets, _ in taken)
while not is_over:
    wait()
    # After an edge everything is taken; else one datagram for each wait, so that a wrong wake-up blocks for good.
    while (taken := take()) is not None:
        octets, source = taken
        if how in ("slow", "rests"):
            time.sleep(0.004 if how == "slow" else 0.0015)
        if octets == b"end":
            is_over = True
            break
        number = int.from_bytes(octets[:4], "big")
        first_at = first_at or time.monotonic()
        came += 1
        damaged += octets[4:] != bytes([number & 255]) * (len(octets) - 4)
        disordered += number <= last.get(source, -1)
        last[source] = number
        each[source] = each.get(source, 0) + 1
        if how == "answer":
            at.sendto(octets, source)
        if how.startswith("connected") and came == 1:
            at.connect(source)
        if how not in ("edge", "recv", "filtered", "scattered", "shared", "slow", "rests"):
            break
hosts = sorted({host for host, _ in last})
print(json.dumps({"came": came, "damaged": damaged, "disordered": disordered, "sources": len(last), "hosts": hosts,
                  "each": sorted(each.values()), "first_at": first_at}), flush=True)
