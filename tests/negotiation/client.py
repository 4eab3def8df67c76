"""Connects many times and says how it went. Each line of standard input is a task, as JSON:

    {"address": ..., "ports": [...], "count": N, "first": whether the server speaks first}

The answer to each is a line of JSON: connections that were good, those that were refused, other errors by their name,
how the octets went (`ddp`, `tcp`, `plain` without Weft), and the milliseconds of the connects and of whole connections.
"""
import collections
import errno
import json
import socket
import statistics
import struct
import sys
import time

# weft/sockets.h
SOL_WEFT, WEFT_SO_DDP = 0x57454654, 1
STATES = ["undecided", "tcp", "ddp"]
GREETING = b"220 ready\n"


def state(connection):
    try:
        status = connection.getsockopt(SOL_WEFT, WEFT_SO_DDP, 12)
    except OSError as error:
        # A kernel has no such level (sockets.h), and some say so in another way.
        if error.errno not in (errno.ENOPROTOOPT, errno.EOPNOTSUPP):
            raise
        return "plain"
    return STATES[struct.unpack("iii", status)[1]]


def read_line(connection):
    line = b""
    while not line.endswith(b"\n"):
        octets = connection.recv(100)
        if not octets:
            raise EOFError(line)
        line += octets
    return line


def talk(number, connection, first):
    """One conversation; an error in its words where the server says something else than it should."""
    if first and (line := read_line(connection)) != GREETING:
        raise ValueError(f"greeted by {line!r}")
    connection.sendall(b"hello %d\n" % number)
    if (line := read_line(connection)) != b"ok %d\n" % number:
        raise ValueError(f"answered by {line!r}")
    connection.shutdown(socket.SHUT_WR)
    if rest := connection.recv(100):
        raise ValueError(f"{rest!r} behind the end")


def work(task):
    good, refused, errors, states = 0, 0, collections.Counter(), collections.Counter()
    connects, wholes = [], []
    for number in range(task["count"]):
        to = task["address"], task["ports"][number % len(task["ports"])]
        with socket.socket() as connection:
            connection.settimeout(20)
            begin = time.perf_counter()
            try:
                connection.connect(to)
                connects.append(time.perf_counter() - begin)
                talk(number, connection, task["first"])
                wholes.append(time.perf_counter() - begin)
                states[state(connection)] += 1
                good += 1
            except ConnectionRefusedError:
                refused += 1
            except (OSError, EOFError, ValueError) as error:
                errors[f"{type(error).__name__}: {error}"] += 1

    def ms(times):
        return [round(statistics.median(times) * 1000, 3), round(max(times) * 1000, 3)] if times else None

    return {"good": good, "refused": refused, "errors": errors, "states": states, "connect_ms": ms(connects),
            "whole_ms": ms(wholes)}


for line in sys.stdin:
    print(json.dumps(work(json.loads(line))), flush=True)
