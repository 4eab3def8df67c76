#!/usr/bin/env python3
"""A program that knows nothing of Weft: sends datagrams to two others in turn, for three seconds.

    two.py PORT PORT        of 127.0.0.1

Says how many times it did so, and in how many of the sends it slept, as a line of JSON.
"""
import json
import resource
import socket
import sys
import time

ends = [("127.0.0.1", int(port)) for port in sys.argv[1:]]
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# Each has a connection before both are sent to in turn.
for end in ends:
    for number in range(60):
        to.sendto(number.to_bytes(4, "big"), end)
        time.sleep(0 if number % 8 else 0.0005)
    time.sleep(0.3)
rounds = waited = 0
over = time.monotonic() + 3
while time.monotonic() < over:
    for end in ends:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        to.sendto(bytes(1000), end)
        # Another thread may have had the processor; who waits gives it up.
        waited += resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw != before
    rounds += 1
    if rounds % 16 == 0:
        time.sleep(0.004)
print(json.dumps({"rounds": rounds, "waited": waited}), flush=True)
