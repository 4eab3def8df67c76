#!/usr/bin/env python3
"""A program that knows nothing of Weft: sends five datagrams, and the end of all, and is done with the socket at once.

    brief.py PORT close|exit|again

After `close` it lives on for a while; `again` binds the address that it has just closed.
"""
import socket
import sys
import time

port, how = int(sys.argv[1]), sys.argv[2]
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to.bind(("127.0.0.1", 0))
at = to.getsockname()
for number in range(5):
    to.sendto(number.to_bytes(4, "big") + bytes([number]) * 96, ("127.0.0.1", port))
to.sendto(b"end", ("127.0.0.1", port))
if how != "exit":
    to.close()
if how == "again":
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(at)
if how == "close":
    time.sleep(4)
