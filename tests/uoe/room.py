#!/usr/bin/env python3
"""A program that knows nothing of Weft: sends until it is refused, and waits for room, three times.

    room.py HOW PORT        HOW: edge, poll, select; to that port of 127.0.0.1

Says how often it was refused, as a line of JSON.
"""
import json
import select
import socket
import sys

how, end = sys.argv[1], ("127.0.0.1", int(sys.argv[2]))
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to.setblocking(False)
epoll, polled = select.epoll(), select.poll()
epoll.register(to, select.EPOLLOUT | select.EPOLLET)
polled.register(to, select.POLLOUT)
epoll.poll(0)


def has_room():
    """Waits for it, five seconds."""
    if how == "edge":
        return epoll.poll(5)
    if how == "poll":
        return polled.poll(5000)
    return select.select([], [to], [], 5)[1]


waits = refused = 0
while waits < 3:
    try:
        to.sendto(bytes(1000), end)
    except BlockingIOError:
        refused += 1
        if refused > 100:
            raise SystemExit("it is told of room that is not there") from None
        if not has_room():
            raise SystemExit("it waits for room in vain") from None
        waits += 1
print(json.dumps({"refused": refused}), flush=True)
