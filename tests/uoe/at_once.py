#!/usr/bin/env python3
"""A program that knows nothing of Weft: sends datagrams to another of its kind, which sends to it at the same time.

    at_once.py OWN PEER START COUNT     ports of 127.0.0.1; when to begin, by the monotonic clock; how many datagrams

Its socket is connected, and a thread waits in recv and answers each. Says how many came, how many of those were out of
order or came twice, how many answers, and how many were its own, as a line of JSON.
"""
import json
import socket
import struct
import sys
import threading
import time

own, peer, start, count = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
HEAD = struct.Struct("!IIB")
at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
at.bind(("127.0.0.1", own))
at.connect(("127.0.0.1", peer))
at.settimeout(None)
came = {"came": 0, "disordered": 0, "answers": 0, "own": 0, "damaged": 0}


def send(source, number, is_answer):
    try:
        at.send(HEAD.pack(source, number, is_answer) + bytes(91))
    except ConnectionRefusedError:
        pass


def receive():
    last = -1
    while True:
        try:
            octets = at.recv(2000)
        except ConnectionRefusedError:
            continue  # the other one begins later, or has ended
        if len(octets) != 100:
            came["damaged"] += 1
            continue
        source, number, is_answer = HEAD.unpack_from(octets)
        if is_answer:
            came["answers"] += 1
            came["own"] += source != own
            continue
        came["came"] += 1
        came["own"] += source == own
        came["disordered"] += source != own and number <= last
        last = max(last, number)
        send(source, number, 1)


threading.Thread(target=receive, daemon=True).start()
time.sleep(max(0, start - time.monotonic()))
for number in range(count):
    send(own, number, 0)
    # The other one sleeps now and then, and has to be woken.
    if number % 64 == 63:
        time.sleep(0.001)
time.sleep(1)
print(json.dumps(came), flush=True)
