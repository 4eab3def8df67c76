#!/usr/bin/env python3
"""A program that knows nothing of Weft: in the midst of sending it closes every number but its socket's, as daemons do,
and gives the numbers to a pair of sockets of its own.

    closes.py PORT COUNT ADDRESS

Says, as a line of JSON, how many were sent and how much somebody else has written to that pair.
"""
import json
import os
import socket
import sys
import time

port, count, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to.connect((address, port))
for number in range(count):
    to.send(number.to_bytes(4, "big") + bytes([number & 255]) * 196)
    if number == count // 2:
        os.closerange(3, to.fileno())
        os.closerange(to.fileno() + 1, 4096)
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for taken in range(256, 320):
            os.dup2(one.fileno(), taken)
    elif number % 100 == 99:
        time.sleep(0.002)
time.sleep(0.3)
to.send(b"end")
other.setblocking(False)
written = 0
try:
    while True:
        other.recv(70000)
        written += 1
except BlockingIOError:
    pass
print(json.dumps({"sent": count, "written": written}), flush=True)
