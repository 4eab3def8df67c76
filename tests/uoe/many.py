#!/usr/bin/env python3
"""A program that knows nothing of Weft: sends to two hundred and fifty addresses that nobody has, and to one that is there.

    many.py PORT ADDRESS NETWORK        NETWORK: the first three octets of theirs

The one that is there is sent five datagrams, each after all others have been sent one, and then the end of all.
"""
import json
import socket
import sys
import time

port, there, network = int(sys.argv[1]), sys.argv[2], sys.argv[3]
to = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]


def send_to_nobody():
    for one in to:
        for last in range(3, 253):
            one.sendto(b"anybody?", (f"{network}.{last}", port))


begun = time.monotonic()
while time.monotonic() < begun + 12:
    send_to_nobody()
    time.sleep(0.5)
for number in range(5):
    send_to_nobody()
    # When it was sent is said in the datagram: the receiver tells how long the last one took.
    to[0].sendto(number.to_bytes(4, "big") + bytes([number]) * 96, (there, port))
since = time.monotonic()
to[0].sendto(b"end %.3f" % since, (there, port))
time.sleep(15)
print(json.dumps({"since": since}), flush=True)
