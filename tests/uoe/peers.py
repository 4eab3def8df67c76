#!/usr/bin/env python3
"""Memory of a process that thousands of sockets of others have carriers to, each of which has sent one datagram.

    tests/uoe/peers.py --weft FILE [--peers N]

Starts a receiver with four sockets, and senders of 640 sockets each, under Weft and without, and compares what the
receiver takes of memory. Says how many octets there are for each peer; more than 4 KiB are a failure. The last line is
`N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import resource
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
from counts import Counts  # noqa: E402

ADDRESS = "127.0.0.1"
RECEIVERS = 4
SOCKETS_EACH = 640
OCTETS_MAX = 4096
FEW = 8
PATIENCE = 120
SIZE = 100
# Between two sends of a process, so that the kernel's queues hold what comes.
PAUSE = 0.001


def resident():
    words = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in words if line.startswith("Private_"))


def receive(peers):
    """Says its ports, and once that many sources have been heard what it takes of memory."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(RECEIVERS)]
    waiting = select.epoll()
    for one in sockets:
        one.bind((ADDRESS, 0))
        one.setblocking(False)
        waiting.register(one, select.EPOLLIN)
    print(json.dumps([one.getsockname()[1] for one in sockets]), flush=True)
    by_number, seen = {one.fileno(): one for one in sockets}, set()
    begun = time.monotonic()
    until = begun + PATIENCE
    while len(seen) < peers and time.monotonic() < until:
        for number, _ in waiting.poll(1):
            try:
                while True:
                    octets, source = by_number[number].recvfrom(2 * SIZE)
                    assert len(octets) == SIZE
                    seen.add(source)
            except BlockingIOError:
                pass
    took = time.monotonic() - begun
    # What is freed some time after the last datagram.
    time.sleep(3)
    print(json.dumps({"heard": len(seen), "seconds": round(took, 1), "octets": resident()}), flush=True)
    sys.stdin.read()


def send(ports, count):
    """Each socket sends one datagram, and stays."""
    sockets = []
    for number in range(count):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.connect((ADDRESS, ports[number % len(ports)]))
        one.send(bytes(SIZE))
        sockets.append(one)
        time.sleep(PAUSE)
    print("sent", flush=True)
    sys.stdin.read()


class Run:
    """A receiver and its senders, all under Weft or none."""

    def __init__(self, weft, peers):
        self.weft, self.peers, self.processes = weft, peers, []

    def start(self, rule, *words):
        under = [self.weft, "run", "--log", "info", "--udp", rule, "--"] if self.weft else []
        command = [*map(str, under), sys.executable, str(HERE / "peers.py"), *map(str, words)]
        self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return self.processes[-1]

    def measure(self):
        """What the receiver says."""
        try:
            receiver = self.start("uoe prefer", "--receive", self.peers)
            ports = receiver.stdout.readline().strip()
            left = self.peers
            while left:
                count = min(left, SOCKETS_EACH)
                sender = self.start("uoe require", "--send", ports, count)
                # One behind the other: what came at once to many sockets would be dropped by plain UDP.
                sender.stdout.readline()
                left -= count
            return json.loads(receiver.stdout.readline())
        finally:
            for process in self.processes:
                process.stdin.close()
            for process in self.processes:
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", help="the command")
    parser.add_argument("--peers", type=int, default=10_000, help="sockets that send")
    parser.add_argument("--receive", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--send", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.receive:
        return receive(args.receive)
    if args.send:
        return send(json.loads(args.send[0]), int(args.send[1]))
    if not args.weft:
        parser.error("--weft says which command")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
    # What there is for any number of peers does not count.
    few, many = ([Run(under, peers).measure() for under in (None, os.path.realpath(args.weft))]
                 for peers in (FEW, args.peers))
    of_plain, of_weft = (there["octets"] - here["octets"] for here, there in zip(few, many))
    each = (of_weft - of_plain) / (args.peers - FEW)
    is_so = many[1]["heard"] == args.peers and many[0]["heard"] > 0.99 * args.peers and 0 < each < OCTETS_MAX
    print(f"without Weft: {many[0]}; under it: {many[1]}; {each:.0f} octets of memory for each peer more")
    return Counts(passed=int(is_so), failed=int(not is_so)).close()


if __name__ == "__main__":
    sys.exit(main())
