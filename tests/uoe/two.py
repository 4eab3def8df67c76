#!/usr/bin/env python3
"""A program that knows nothing of Weft: sends datagrams to two others in turn, of which the second takes few.

    two.py PORT PORT one|each        of 127.0.0.1; by one socket, or by one for each

First the second one is sent to alone, until it has more than it can take. Then both are, for three seconds. Says how
many times, and how many of the sends to either slept until a millisecond had passed, as a line of JSON.
"""
import json
import resource
import socket
import sys
import time

REFUSALS = 50
ends = [("127.0.0.1", int(port)) for port in sys.argv[1:3]]
to = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in ends]
if sys.argv[3] == "one":
    to[1] = to[0]
# Each has a connection before both are sent to in turn.
for socket_, end in zip(to, ends):
    for number in range(60):
        socket_.sendto(number.to_bytes(4, "big"), end)
        time.sleep(0 if number % 8 else 0.0005)
    time.sleep(0.3)
# Until sends have been refused for want of room again and again: TCP makes more of that for a while.
refused = 0
begun = time.monotonic()
while refused < REFUSALS and time.monotonic() < begun + 20:
    try:
        to[1].sendto(bytes(1000), socket.MSG_DONTWAIT, ends[1])
    except BlockingIOError:
        refused += 1
        time.sleep(0.001)
is_full = refused == REFUSALS
rounds = waited = 0
over = time.monotonic() + 3
while time.monotonic() < over:
    for socket_, end in zip(to, ends):
        before, since = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw, time.monotonic()
        socket_.sendto(bytes(1000), end)
        # Who waits for room gives the processor up; who only lost it to another thread has not slept. Waits for a
        # lock sleep too, a tenth of a millisecond, and are not what is asked for.
        slept = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw != before
        waited += slept and time.monotonic() - since >= 0.001
    rounds += 1
    if rounds % 16 == 0:
        time.sleep(0.004)
print(json.dumps({"full": is_full, "rounds": rounds, "waited": waited}), flush=True)
