#!/usr/bin/env python3
"""Programs that know nothing of Weft: one rests while the other sends it a few datagrams, then many, and ends. What
was sent first comes first, by whichever way it came.

    behind.py receive          says "port N", and then what came behind a later one, as a line of JSON
    behind.py send PORT        says how many were sent

Both first send busily and are answered, so that there is a channel, and then seldom, so that what is sent is plain.
"""
import json
import socket
import sys
import time

ANSWERED, FEW, MANY, OCTETS, RESTS = 2560, 40, 400, 200, 0.4
# Datagrams after which the receiver rests.
RESTS_AT = ANSWERED + FEW


def datagram(number):
    return number.to_bytes(4, "big") + bytes(OCTETS - 4)


def send(port):
    at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    at.connect(("127.0.0.1", port))
    for begin in range(0, ANSWERED, 64):
        for number in range(begin, begin + 64):
            at.send(datagram(number))
        for _ in range(64):
            at.recv(OCTETS)
    for number in range(ANSWERED, ANSWERED + 2 * FEW):
        time.sleep(0.005)
        at.send(datagram(number))
    for number in range(ANSWERED + 2 * FEW, ANSWERED + 2 * FEW + MANY):
        at.send(datagram(number))
    print(json.dumps({"sent": ANSWERED + 2 * FEW + MANY}), flush=True)


def receive():
    at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    at.settimeout(5)
    at.bind(("127.0.0.1", 0))
    print("port", at.getsockname()[1], flush=True)
    came, latest, behind = 0, -1, []
    while True:
        try:
            octets, source = at.recvfrom(OCTETS)
        except TimeoutError:
            break
        came, number = came + 1, int.from_bytes(octets[:4], "big")
        if number < latest:
            behind.append(number)
        latest = max(latest, number)
        if came <= ANSWERED:
            at.sendto(octets, source)
        if came == RESTS_AT:
            time.sleep(RESTS)
        if came > RESTS_AT:
            at.settimeout(1)
    print(json.dumps({"came": came, "behind": len(behind), "first": behind[:3]}), flush=True)


if sys.argv[1] == "send":
    send(int(sys.argv[2]))
else:
    receive()
