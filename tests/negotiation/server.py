"""Serves conversations of one line, and counts octets that no client of its meant.

    server.py ADDRESS PORT PORTS first|last

PORTS ports from PORT on, shared with whoever wants them too. `first`: it greets before it reads. It says a line of JSON
when it listens, and one for each line of standard input: conversations it served, those with foreign octets, and what
the first of those began with.
"""
import json
import re
import selectors
import socket
import sys

address, port, ports, speaks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
counts = {"served": 0, "foreign": 0, "sample": None}
selector = selectors.DefaultSelector()


def converse(connection):
    connection.settimeout(10)
    if speaks == "first":
        connection.sendall(b"220 ready\n")
    line = b""
    while not line.endswith(b"\n"):
        octets = connection.recv(1000)
        if not octets:
            break
        line += octets
    # A client that was reset, or went away, has said nothing; anything else than its line is not its own.
    hello = re.fullmatch(rb"hello (\d+)\n", line)
    if line and not hello:
        counts["foreign"] += 1
        counts["sample"] = counts["sample"] or repr(line[:100])
    if hello:
        connection.sendall(b"ok %s\n" % hello[1])
        counts["served"] += 1
        connection.recv(100)


def serve(listener):
    connection, _ = listener.accept()
    with connection:
        try:
            converse(connection)
        except OSError:
            pass  # the client says what it was told


for number in range(port, port + ports):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((address, number))
    listener.listen(64)
    selector.register(listener, selectors.EVENT_READ)
selector.register(sys.stdin, selectors.EVENT_READ)
print(json.dumps("listens"), flush=True)
while True:
    for key, _ in selector.select():
        if key.fileobj is not sys.stdin:
            serve(key.fileobj)
        elif not sys.stdin.readline():
            sys.exit()
        else:
            print(json.dumps(counts), flush=True)
