#!/usr/bin/env python3
"""A program that knows nothing of Weft: binds a socket, and leaves it to a child, as servers do.

    forked.py HOW       HOW: daemon, command, workers, served, passed, started, threads

Says "port N". `daemon`: the parent ends before anything comes. `command`: another program is run, with the socket open,
after each thousand datagrams. `workers`: two children receive from one socket; each says what came. `served`: the parent has received a thousand datagrams before the child takes over, and ends then. `passed`:
the socket is sent to another process. `started`: another program is started with it, which receives.

The process that is left says at the end, as a line of JSON, how many came, and how many twice or damaged.
"""
import array
import json
import os
import socket
import subprocess
import sys
import time


def receive(at, most=None):
    """Until the end of all, or so many; gives how many came, whether all is over, and what was wrong."""
    seen, damaged = set(), 0
    while most is None or len(seen) < most:
        octets = at.recv(70000)
        if octets == b"end":
            return seen, damaged, True
        number = int.from_bytes(octets[:4], "big")
        damaged += octets[4:] != bytes([number & 255]) * (len(octets) - 4) or number in seen
        seen.add(number)
    return seen, damaged, False


def say(seen, damaged):
    print(json.dumps({"came": len(seen), "damaged": damaged}), flush=True)


def serve(at):
    print("port", at.getsockname()[1], flush=True)
    seen, damaged, _ = receive(at)
    say(seen, damaged)


def main():
    how = sys.argv[1]
    if how == "inherited":
        return serve(socket.socket(fileno=int(sys.argv[2])))
    if how == "taker":
        channel = socket.socket(fileno=int(sys.argv[2]))
        _, messages, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(4))
        number = array.array("i", messages[0][2])[0]
        return serve(socket.socket(fileno=number))
    at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    at.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    at.bind(("127.0.0.1", 0))
    at.set_inheritable(True)
    if how in ("command", "served", "workers"):
        print("port", at.getsockname()[1], flush=True)
    if how == "daemon":
        child = os.fork()
        if child:
            # What the test waits for ends with the child.
            at.close()
            return os.waitpid(child, 0)
        os.setsid()
        return serve(at)
    if how == "command":
        seen, damaged, is_over = set(), 0, False
        while not is_over:
            more, wrong, is_over = receive(at, 1000)
            damaged += wrong + len(seen & more)
            seen |= more
            subprocess.run("true", shell=True, close_fds=False, check=True)
        return say(seen, damaged)
    if how == "served":
        seen, damaged, _ = receive(at, 1000)
        child = os.fork()
        if child:
            at.close()
            return os.waitpid(child, 0)
        more, wrong, _ = receive(at)
        return say(seen | more, damaged + wrong + len(seen & more))
    if how == "workers":
        children = [os.fork() or worker(at) for _ in range(2)]
        at.close()
        for child in children:
            os.waitpid(child, 0)
        return None
    if how == "started":
        done = subprocess.run([sys.executable, __file__, "inherited", str(at.fileno())], close_fds=False)
        return sys.exit(done.returncode)
    if how == "passed":
        here, there = socket.socketpair()
        there.set_inheritable(True)
        taker = subprocess.Popen([sys.executable, __file__, "taker", str(there.fileno())], close_fds=False)
        here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [at.fileno()]))])
        at.close()
        return sys.exit(taker.wait())
    raise SystemExit(how)


def worker(at):
    """One of several at one socket: takes what it gets, until nothing has come for two seconds."""
    seen, damaged = set(), 0
    at.settimeout(20)
    while True:
        try:
            octets = at.recv(70000)
        except TimeoutError:
            break
        at.settimeout(2)
        if octets == b"end":
            continue
        number = int.from_bytes(octets[:4], "big")
        damaged += octets[4:] != bytes([number & 255]) * (len(octets) - 4) or number in seen
        seen.add(number)
        # Others have their turn.
        if number % 50 == 0:
            time.sleep(0.001)
    say(seen, damaged)
    sys.exit(0)


main()
