#!/usr/bin/env python3
"""A program that gives its socket a rate before it sends anything, and then sends all it has as fast as it can.

    at_first.py PORT COUNT SIZE RATE ADDRESS [PID]       RATE: bits a second

Says how long that took, in seconds, as a line of JSON. The process PID is stopped after a thousand, and goes on at the
end.
"""
import json
import os
import signal
import socket
import struct
import sys
import time

SOL_WEFT, WEFT_SO_RATE = 0x57454654, 2
port, count, size, rate = (int(word) for word in sys.argv[1:5])
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to.connect((sys.argv[5], port))
to.setsockopt(SOL_WEFT, WEFT_SO_RATE, struct.pack("@Q", rate))
stopped = int(sys.argv[6]) if len(sys.argv) > 6 else None
begun = time.monotonic()
for number in range(count):
    if stopped and number == 1000:
        os.kill(stopped, signal.SIGSTOP)
    to.send(number.to_bytes(4, "big") + bytes([number & 255]) * (size - 4))
took = time.monotonic() - begun
if stopped:
    os.kill(stopped, signal.SIGCONT)
time.sleep(0.5)
to.send(b"end")
print(json.dumps({"sent": count + 1, "took": took}), flush=True)
