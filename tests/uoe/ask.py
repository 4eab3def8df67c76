#!/usr/bin/env python3
"""A program that knows nothing of Weft: asks something and waits for ten answers by poll, select or epoll. Its socket
is entered before the first datagram binds it.

    ask.py PORT poll|select|epoll
"""
import json
import select
import socket
import sys

port, how = int(sys.argv[1]), sys.argv[2]
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to.setblocking(False)
polled, epoll = select.poll(), select.epoll()
polled.register(to, select.POLLIN)
epoll.register(to, select.EPOLLIN)
to.sendto(b"what?", ("127.0.0.1", port))
answers = 0
while answers < 10:
    if how == "poll":
        polled.poll()
    elif how == "select":
        select.select([to], [], [])
    else:
        epoll.poll()
    try:
        to.recv(2000)
        answers += 1
    except BlockingIOError:
        pass  # it woke for something else
print(json.dumps({"answers": answers}), flush=True)
