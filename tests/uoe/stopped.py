#!/usr/bin/env python3
"""Programs that know nothing of Weft: one stops the other, asks it for a channel of one more socket, sends it what
there is room for, and ends. What the other one says to that, once it goes on, meets nobody.

    stopped.py receive          says "port N", and how many came, once none has come in twenty looks of 0.1 s
    stopped.py send PORT PID    says how many were sent, as it ends
"""
import json
import os
import signal
import socket
import sys
import time

OCTETS, ANSWERED = bytes(1000), 1280


def new_socket():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def send(port, pid):
    at, other = new_socket(), new_socket()
    at.connect(("127.0.0.1", port))
    sent = 0
    while sent < ANSWERED:
        sent += sum(at.send(OCTETS) == len(OCTETS) for _ in range(64))
        for _ in range(64):
            at.recv(len(OCTETS))
    os.kill(pid, signal.SIGSTOP)
    sent += other.sendto(OCTETS, ("127.0.0.1", port)) == len(OCTETS)
    at.setblocking(False)
    begun = time.monotonic()
    while time.monotonic() < begun + 0.5:
        try:
            sent += at.send(OCTETS) == len(OCTETS)
        except BlockingIOError:
            time.sleep(0.01)
    print(json.dumps({"sent": sent}), flush=True)


def receive():
    at = new_socket()
    at.settimeout(0.1)
    at.bind(("127.0.0.1", 0))
    print("port", at.getsockname()[1], flush=True)
    came = looks = 0
    while came == 0 or looks < 20:
        looks += 1
        try:
            octets, source = at.recvfrom(len(OCTETS))
        except TimeoutError:
            continue
        came, looks = came + 1, 0
        if came <= ANSWERED:
            at.sendto(octets, source)
    print(json.dumps({"came": came}), flush=True)


if sys.argv[1] == "send":
    send(*map(int, sys.argv[2:]))
else:
    receive()
