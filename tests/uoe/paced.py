#!/usr/bin/env python3
"""A program that sends as fast as it can, over connections that it has given a rate.

    paced.py PORT COUNT SIZE RATE ADDRESS       RATE: bits a second; then twice as fast for as many again

Says how long both took, in seconds, and what the option says and refuses, as a line of JSON.
"""
import json
import socket
import struct
import sys
import time

SOL_WEFT, WEFT_SO_RATE = 0x57454654, 2
port, count, size, rate = (int(word) for word in sys.argv[1:5])
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to.connect((sys.argv[5], port))


def refused(level, option, value):
    try:
        to.setsockopt(level, option, value)
        return None
    except OSError as error:
        return error.errno


def send(first):
    begun = time.monotonic()
    for number in range(first, first + count):
        to.send(number.to_bytes(4, "big") + bytes([number & 255]) * (size - 4))
    return time.monotonic() - begun


said = [refused(SOL_WEFT, WEFT_SO_RATE, struct.pack("@Q", 63999)), refused(SOL_WEFT, WEFT_SO_RATE, b"1234"),
        refused(SOL_WEFT, 3, struct.pack("@Q", rate))]
# With a rate the socket changes to a connection of its own.
to.send(bytes(size))
time.sleep(0.5)
for number in range(200):
    to.send(number.to_bytes(4, "big") + bytes([number & 255]) * (size - 4))
to.setsockopt(SOL_WEFT, WEFT_SO_RATE, struct.pack("@Q", rate))
has = struct.unpack("@Q", to.getsockopt(SOL_WEFT, WEFT_SO_RATE, 8))[0]
# Until there is a connection.
to.send(bytes(size))
time.sleep(1)
took = [send(200)]
to.setsockopt(SOL_WEFT, WEFT_SO_RATE, struct.pack("@Q", 2 * rate))
took.append(send(200 + count))
time.sleep(0.5)
to.send(b"end")
print(json.dumps({"sent": 202 + 2 * count, "took": took, "refused": said, "has": has}), flush=True)
