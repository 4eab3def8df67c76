#!/usr/bin/env python3
"""Datagrams over carriers between two machines: where UDP is blocked, ports are taken or blocked, addresses translated.

    tests/uoe/networks.py --weft FILE [--only REGEX]

The machines are network namespaces. Needs no privilege but user namespaces. Closes with `N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
import again  # noqa: E402
from counts import Counts  # noqa: E402
from network import Namespaces, enter, ip  # noqa: E402
from process import Failed, Process  # noqa: E402

INSIDE = "--inside"
CLIENT, SERVER, ROUTER = "10.9.1.1", "10.9.1.2", "10.9.1.254"
# Where the server is on the other side of the router, and as what it sees the client.
FAR_SERVER, FAR_ROUTER, FAR_CLIENT = "10.9.2.2", "10.9.2.254", "10.9.2.77"
PORT = 5004
DISCOVERY_PORT = 22342
PATIENCE = 60
CARRIED = re.compile(r"(\d+) datagrams left over (\d+) connections of Weft's, (\d+) came, (\d+) were dropped")
CASES = {}


class Skip(Exception):
    pass


def case(function):
    CASES[function.__name__] = function
    return function


class Bed:
    """A client's machine and a server's, with a veth pair between them, or a router."""

    def __init__(self, weft, work):
        self.weft, self.work, self.processes = weft, work, []
        self.namespaces = Namespaces()

    def begin(self):
        self.client, self.server = (self.namespaces.add(name) for name in ("client", "server"))
        self.namespaces.join(self.client, self.server)
        self.client.up("eth0", f"{CLIENT}/24")
        self.server.up("eth0", f"{SERVER}/24")

    def begin_translated(self):
        """The client's address is another one to the server; the router changes it both ways."""
        self.client, router, self.server = (self.namespaces.add(name) for name in ("client", "router", "server"))
        self.namespaces.join(self.client, router, there="in")
        self.namespaces.join(self.server, router, there="out")
        self.client.up("eth0", f"{CLIENT}/24")
        router.up("in", f"{ROUTER}/24")
        router.up("out", f"{FAR_ROUTER}/24")
        self.server.up("eth0", f"{FAR_SERVER}/24")
        ip("-n", self.client.name, "route", "add", "default", "via", ROUTER)
        self.run(router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        # The server takes the address for one on its network, and the router answers for it.
        ip("-n", router.name, "neigh", "add", "proxy", FAR_CLIENT, "dev", "out")
        tc = ["tc", "qdisc", "add", "dev", "out", "clsact"]
        self.run(router, *tc)
        to = ["tc", "filter", "add", "dev", "out", "egress", "protocol", "ip", "u32", "match", "ip", "src", f"{CLIENT}/32"]
        self.run(router, *to, "action", "nat", "egress", f"{CLIENT}/32", FAR_CLIENT)
        back = ["tc", "filter", "add", "dev", "out", "ingress", "protocol", "ip", "u32"]
        match = ["match", "ip", "dst", f"{FAR_CLIENT}/32"]
        self.run(router, *back, *match, "action", "nat", "ingress", f"{FAR_CLIENT}/32", CLIENT)

    @staticmethod
    def run(namespace, *words):
        done = subprocess.run([*namespace.enter, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Skip(f"{' '.join(words)}: {done.stderr.strip()}")

    def block(self, namespace, *what):
        """Nothing of this leaves the machine any more; what is for itself does."""
        ip("-n", namespace.name, "rule", "add", "pref", 10, *what, "blackhole")

    def start(self, namespace, rule, *words):
        weft = ["--log", "info", "--udp", rule, "--"]
        argv = [*namespace.enter, *([self.weft, "run", *weft] if rule else []), *map(str, words)]
        process = Process(argv, dict(os.environ, PYTHONUNBUFFERED="1"), self.work / f"{len(self.processes)}")
        self.processes.append(process)
        return process

    def receive(self, rule="uoe prefer", how="recv", at=SERVER):
        receiver = self.start(self.server, rule, sys.executable, HERE / "receive.py", how, PORT, at)
        begun = time.monotonic()
        while "port" not in Path(f"{receiver.log}.out").read_text():
            if receiver.ended() or time.monotonic() > begun + PATIENCE:
                raise Failed(f"no port: {receiver.result().errors}")
            time.sleep(0.02)
        return receiver

    def send(self, rule="uoe prefer", count=20000, to=SERVER, *words):
        return self.start(self.client, rule, sys.executable, HERE / "send.py", PORT, count, 200, *words, to)

    def end(self):
        for process in self.processes:
            process.stop()
        self.processes = []
        self.namespaces.close()


def finish(process):
    """What a program said last, and what went over carriers."""
    if not process.wait_awake(PATIENCE):
        raise Failed(f"{process.name} does not end")
    ended = process.result()
    if ended.status != 0:
        raise Failed(f"{ended.how()}: {ended.errors[-400:]}")
    found = CARRIED.search(ended.errors)
    said = json.loads(ended.output.strip().splitlines()[-1])
    return said, tuple(map(int, found.groups())) if found else (0, 0, 0, 0)


def expect(what, is_so):
    if not is_so:
        raise Failed(str(what))


def all_came(sender, receiver, hosts):
    """Everything arrived once, whole and in order, from there. Gives what went over carriers at both ends."""
    sent, carried = finish(sender)
    came, here = finish(receiver)
    expect((sent, came), came["came"] == sent["sent"] and came["damaged"] == came["disordered"] == 0)
    expect(came, came["hosts"] == hosts and came["sources"] == 1)
    return carried, here


@case
def two_machines(bed):
    bed.begin()
    receiver = bed.receive()
    carried, here = all_came(bed.send(), receiver, [CLIENT])
    expect((carried, here), carried[0] > 10000 and here[2] == carried[0] and here[1] == carried[1] == 1)


@case
def translated_address(bed):
    """The server sees the address that it sees on UDP, whoever the client takes itself for."""
    bed.begin_translated()
    receiver = bed.receive(at=FAR_SERVER)
    carried, here = all_came(bed.send(to=FAR_SERVER), receiver, [FAR_CLIENT])
    expect((carried, here), carried[0] > 10000 and here[2] == carried[0])


@case
def translated_address_with_answers(bed):
    bed.begin_translated()
    receiver = bed.receive(how="answer", at=FAR_SERVER)
    sender = bed.send("uoe prefer", 12800, FAR_SERVER, "answered")
    sent, carried = finish(sender)
    came, _ = finish(receiver)
    expect((sent, came), came["came"] == sent["sent"] == sent["answered"] and came["hosts"] == [FAR_CLIENT])
    expect(carried, carried[0] > 1000)


@case
def udp_blocked(bed):
    """Nobody is found; plain datagrams do not arrive either."""
    bed.begin()
    for machine in (bed.client, bed.server):
        bed.block(machine, "ipproto", "udp")
    bed.receive()
    sent = bed.send()
    # The kernel refuses each send.
    expect("it ends", sent.wait_awake(PATIENCE))
    expect("nothing came", not bed.processes[0].ended())


@case
def udp_blocked_and_carriers_required(bed):
    bed.begin()
    for machine in (bed.client, bed.server):
        bed.block(machine, "ipproto", "udp")
    rule = "uoe require udp-path=none"
    receiver = bed.receive(rule)
    carried, here = all_came(bed.send(rule), receiver, [CLIENT])
    expect((carried, here), carried[0] == here[2] == 20001 and here[3] == carried[3] == 0)


@case
def udp_blocked_and_said_at_one_end(bed):
    """The other end wants a proof, which does not come: nothing is taken unproven."""
    bed.begin()
    for machine in (bed.client, bed.server):
        bed.block(machine, "ipproto", "udp")
    receiver = bed.receive()
    sender = bed.send("uoe require udp-path=none", 300)
    _, carried = finish(sender)
    expect(carried, carried[0] == 0 and not receiver.ended())


@case
def agreed_port_taken(bed):
    """Somebody else listens there: carriers are taken at another port."""
    bed.begin()
    holder = bed.start(bed.server, None, sys.executable, "-c",
                       f"import socket, time; s = socket.create_server(('', {DISCOVERY_PORT})); time.sleep(600)")
    holder.await_port(DISCOVERY_PORT)
    receiver = bed.receive()
    carried, here = all_came(bed.send(), receiver, [CLIENT])
    expect((carried, here), carried[0] > 10000 and here[2] == carried[0])


@case
def agreed_port_blocked(bed):
    """Questions pass and connections do not: plain, and nothing is lost."""
    bed.begin()
    bed.block(bed.client, "ipproto", "tcp", "dport", DISCOVERY_PORT)
    receiver = bed.receive()
    carried, here = all_came(bed.send(), receiver, [CLIENT])
    expect((carried, here), carried[0] == here[2] == 0)


@case
def receiver_that_is_killed(bed):
    """Its successor is found within seconds."""
    bed.begin()
    receiver = bed.receive()
    sender = bed.send(count=300000)
    time.sleep(2)
    receiver.stop()
    time.sleep(0.5)
    second = bed.receive()
    _, carried = finish(sender)
    came, here = finish(second)
    expect((carried, here), carried[1] == 2 and here[2] > 1000)
    expect(came, came["came"] > 1000 and came["damaged"] == came["disordered"] == 0)


def play(bed, name):
    try:
        CASES[name](bed)
        return "passed", ""
    except Skip as skip:
        return "skipped", f"{skip}"
    except (Failed, OSError) as failed:
        return "failed", f"{type(failed).__name__}: {failed}"
    finally:
        bed.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", required=True, help="the command")
    parser.add_argument("--only", default="", help="cases whose name this finds")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:
        print(f"skipped all: {enter(INSIDE)}")
        return Counts(skipped=1).close()
    # Where `ip` keeps the names of namespaces; the run's own, as its root is not the machine's.
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    with tempfile.TemporaryDirectory() as work:
        bed = Bed(os.path.realpath(args.weft), Path(work))
        names = [name for name in CASES if re.search(args.only, name)]
        counts = again.play_each(names, lambda name: play(bed, name))
    return counts.close()


if __name__ == "__main__":
    sys.exit(main())
