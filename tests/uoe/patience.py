#!/usr/bin/env python3
"""A program that knows nothing of Weft: waits for a second in each of four receives, for what never comes.

Says "port N", and how long each took, in seconds, as a line of JSON.
"""
import json
import socket
import struct
import time

at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
at.bind(("127.0.0.1", 0))
# The kernel's timeout, in its own call: Python's would be its own.
at.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 1, 0))
print("port", at.getsockname()[1], flush=True)
waits = []
for _ in range(4):
    begun = time.monotonic()
    try:
        raise SystemExit(f"{at.recv(100)!r} came")
    except BlockingIOError:
        waits.append(time.monotonic() - begun)
print(json.dumps({"waits": waits}), flush=True)
