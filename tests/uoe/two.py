#!/usr/bin/env python3
"""A program that knows nothing of Weft: sends datagrams to two others in turn, for three seconds.

    two.py PORT PORT        of 127.0.0.1

Says how many times it did so, and how many of the sends slept until a millisecond had passed, as a line of JSON.
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
        before, since = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw, time.monotonic()
        to.sendto(bytes(1000), end)
        # Who waits for room gives the processor up; who only lost it to another thread has not slept. Waits for a
        # lock sleep too, a tenth of a millisecond, and are not what is asked for.
        slept = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw != before
        waited += slept and time.monotonic() - since >= 0.001
    rounds += 1
    if rounds % 16 == 0:
        time.sleep(0.004)
print(json.dumps({"rounds": rounds, "waited": waited}), flush=True)
