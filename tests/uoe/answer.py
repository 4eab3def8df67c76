#!/usr/bin/env python3
"""A program that knows nothing of Weft: sends ten datagrams to whoever asks it something.

    answer.py
"""
import socket

at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
at.bind(("127.0.0.1", 0))
print("port", at.getsockname()[1], flush=True)
while True:
    _, source = at.recvfrom(2000)
    for number in range(10):
        at.sendto(b"answer %d" % number, source)
