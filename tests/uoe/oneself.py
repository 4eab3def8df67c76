#!/usr/bin/env python3
"""A program that knows nothing of Weft: sends datagrams to sockets of its own.

Says how many of each five came, as a line of JSON.
"""
import json
import socket
import time

came = []
for _ in range(20):
    at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    at.bind(("127.0.0.1", 0))
    at.settimeout(5)
    to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for number in range(5):
        to.sendto(b"%d" % number, at.getsockname())
    in_order = [at.recv(100) for _ in range(5)] == [b"%d" % number for number in range(5)]
    came.append(5 if in_order else 0)
    time.sleep(0.01)
print(json.dumps({"came": came}), flush=True)
