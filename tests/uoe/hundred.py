"""Sockets of one process that one socket elsewhere sends to, or the sender.

    hundred.py takes          prints the ports of its sockets, and at the end what came
    hundred.py sends PORT...  sends to each of them in turn
"""
import json
import select
import socket
import sys

SOCKETS = 10
DATAGRAMS = 200
SIZE = 1000
# Seconds without a datagram after which no more are waited for.
PATIENCE = 20


def octets(number):
    return number.to_bytes(8, "big") + bytes([number % 251]) * (SIZE - 8)


def takes():
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(SOCKETS)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    print("ports", *(one.getsockname()[1] for one in sockets))
    next_of, came, wrong = dict.fromkeys(sockets, 0), 0, 0
    while came < SOCKETS * DATAGRAMS:
        ready, _, _ = select.select(sockets, [], [], PATIENCE)
        if not ready:
            break
        for one in ready:
            wrong += one.recv(2 * SIZE) != octets(next_of[one])
            next_of[one] += 1
            came += 1
    print(json.dumps({"came": came, "wrong": wrong}))


def sends(ports):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for number in range(DATAGRAMS):
        for port in ports:
            one.sendto(octets(number), ("127.0.0.1", port))
    print(json.dumps({"sent": DATAGRAMS * len(ports)}))


if sys.argv[1] == "takes":
    takes()
else:
    sends([int(port) for port in sys.argv[2:]])
