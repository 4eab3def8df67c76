#!/usr/bin/env python3
"""A program that knows nothing of Weft: sends to 250 addresses that nobody has, and to one that is there.

    many.py PORT ADDRESS NETWORK        NETWORK: the first three octets of theirs

For some seconds only nobody is sent to. Then the one that is there is sent five datagrams, each after all others have
been sent one, and the end of all; five seconds later the program ends. It says when the first of these was sent, by the
monotonic clock.
"""
import json
import socket
import sys
import time

port, there, network = int(sys.argv[1]), sys.argv[2], sys.argv[3]
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def send_to_nobody():
    for last in range(3, 253):
        to.sendto(b"anybody?", (f"{network}.{last}", port))


begun = time.monotonic()
while time.monotonic() < begun + 8:
    send_to_nobody()
    time.sleep(0.5)
first_at = None
for number in range(5):
    send_to_nobody()
    first_at = first_at or time.monotonic()
    to.sendto(number.to_bytes(4, "big") + bytes([number]) * 96, (there, port))
to.sendto(b"end", (there, port))
time.sleep(5)
print(json.dumps({"sent": 5, "first_at": first_at}), flush=True)
