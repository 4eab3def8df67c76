#!/usr/bin/env python3
"""Whether `--ddp prefer` harms anybody: clients that prefer DDP and servers of every kind, in two network namespaces.

    tests/negotiation/run.py --weft FILE [--only REGEX] [--count N]

Each case connects N times (1000), to many ports, since what was learnt of a server is remembered. No server may see an
octet that its client did not send, and every conversation has to come out right. Prints how long connects took beside
those of a plain client. Needs no privilege but user namespaces. Closes with `N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
import again  # noqa: E402
from counts import Counts  # noqa: E402
from network import Namespaces, enter, ip  # noqa: E402
from process import Failed, Talker  # noqa: E402

INSIDE = "--inside"
CLIENT, SERVER, NAT = "10.9.1.1", "10.9.1.2", "10.9.1.99"
PORT, PORTS = 7000, 50
DISCOVERY_PORT = 22342
# The delay of the emulated link, milliseconds one way.
DELAY_MS = 10
CASES = {}


class Skip(Exception):
    pass


def case(function):
    CASES[function.__name__] = function
    return function


class Bed:
    """A client's machine and a server's, with a veth pair between them; `far`, with an emulated link."""

    def __init__(self, weft, count):
        self.weft, self.count, self.talkers = weft, count, []
        self.namespaces = Namespaces()

    def begin(self, far=False):
        self.client, self.server = (self.namespaces.add(name) for name in ("client", "server"))
        if far:
            between = self.namespaces.add("between")
            self.namespaces.join(self.client, between, there="a")
            self.namespaces.join(self.server, between, there="b")
            for device in ("a", "b"):
                between.up(device)
        else:
            self.namespaces.join(self.client, self.server)
        self.client.up("eth0", f"{CLIENT}/24")
        self.server.up("eth0", f"{SERVER}/24")
        if far:
            words = [*between.enter, self.weft, "link", "a", "b", "--delay", f"{DELAY_MS}ms"]
            self.link = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
            self.link.stderr.readline()

    def end(self):
        for talker in self.talkers:
            talker.kill()
        if getattr(self, "link", None):
            self.link.terminate()
            self.link.wait()
            self.link.stderr.close()
        self.link, self.talkers = None, []
        self.namespaces.close()

    def talker(self, namespace, prefers, script, *words):
        rule = prefers if isinstance(prefers, str) else "prefer"
        weft = [self.weft, "run", "--ddp", rule, "--"] if prefers else []
        talker = Talker([*namespace.enter, *weft, sys.executable, HERE / script, *words])
        self.talkers.append(talker)
        return talker

    def serve(self, speaks, prefers=False, ports=PORTS):
        server = self.talker(self.server, prefers, "server.py", SERVER, PORT, ports, speaks)
        server.hear()
        return server

    def holds_port(self, how):
        holder = self.talker(self.server, False, "answerer.py", SERVER, how)
        holder.hear()
        return holder

    def connect(self, speaks, prefers=True, address=SERVER, count=None, ports=PORTS):
        """What a client is told that connects; a fresh one, which knows no server."""
        task = {"address": address, "ports": list(range(PORT, PORT + ports)), "count": count or self.count,
                "first": speaks == "first"}
        return self.talker(self.client, prefers, "client.py").ask(json.dumps(task), 600)

    def iptables(self, namespace, *words):
        done = subprocess.run([*namespace.enter, "iptables", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Skip(f"iptables: {done.stderr.strip().splitlines()[-1]}")


def all_good(told, count, state):
    """Every conversation came out right, and went that way."""
    wanted = {"good": count, "refused": 0, "errors": {}, "states": {state: count}}
    assert {key: told[key] for key in wanted} == wanted, told


def nothing_foreign(server, served=None):
    counts = server.ask("counts")
    assert counts["foreign"] == 0, counts
    assert served is None or counts["served"] == served, counts


def said(name, told):
    print(f"    {name}: connect {told['connect_ms']}, whole {told['whole_ms']} ms (median, most)", flush=True)


def beside_plain(bed, speaks, state="tcp"):
    """Clients that prefer DDP, and plain ones for comparison, of a server that speaks first or last."""
    told = bed.connect(speaks)
    said("prefers", told)
    plain = bed.connect(speaks, prefers=False)
    said("plain", plain)
    all_good(told, bed.count, state)
    all_good(plain, bed.count, "plain")
    return told, plain


@case
def plain_server_that_speaks_first(bed):
    bed.begin()
    server = bed.serve("first")
    beside_plain(bed, "first")
    nothing_foreign(server, 2 * bed.count)


@case
def plain_server_that_speaks_last(bed):
    bed.begin()
    server = bed.serve("last")
    beside_plain(bed, "last")
    nothing_foreign(server, 2 * bed.count)


@case
def closed_port(bed):
    bed.begin()
    told = bed.connect("last")
    assert (told["refused"], told["errors"]) == (bed.count, {}), told


@case
def firewall_that_drops_questions(bed):
    bed.begin()
    bed.iptables(bed.server, "-A", "INPUT", "-p", "udp", "--dport", str(DISCOVERY_PORT), "-j", "DROP")
    server = bed.serve("last")
    told, _ = beside_plain(bed, "last")
    nothing_foreign(server, 2 * bed.count)
    # Who is asked is waited for once a minute.
    assert told["connect_ms"][0] < 20, told


@case
def discovery_port_of_somebody_else(bed):
    bed.begin()
    server = bed.serve("first")
    holder = bed.holds_port("silent")
    beside_plain(bed, "first")
    nothing_foreign(server, 2 * bed.count)
    questions = holder.ask("questions")
    assert questions == PORTS, f"{questions} questions about {PORTS} servers"


@case
def weft_server_that_speaks_last(bed):
    bed.begin()
    server = bed.serve("last", prefers=True)
    beside_plain(bed, "last", state="ddp")
    nothing_foreign(server, 2 * bed.count)


@case
def weft_server_that_speaks_first(bed):
    bed.begin()
    server = bed.serve("first", prefers=True)
    told = bed.connect("first")
    said("prefers", told)
    # The greeting may be quicker than the question: that connection is TCP.
    assert (told["good"], told["errors"]) == (bed.count, {}), told
    assert set(told["states"]) <= {"ddp", "tcp"}, told
    print(f"    {told['states']}", flush=True)
    nothing_foreign(server, bed.count)


@case
def through_a_translator(bed):
    bed.begin()
    # The server is known by another address, at the client's end of the path.
    rule = ["-t", "nat", "-A", "OUTPUT", "-d", NAT, "-j", "DNAT", "--to-destination", SERVER]
    bed.iptables(bed.client, *rule)
    server = bed.serve("last", prefers=True)
    told = bed.connect("last", address=NAT)
    all_good(told, bed.count, "tcp")
    nothing_foreign(server, bed.count)


@case
def two_backends_of_one_address(bed):
    """The connections go to a plain one, the questions to one that is Weft, as routers choose by flow."""
    bed.begin()
    other = bed.namespaces.add("other")
    bed.namespaces.join(bed.client, other, here="eth1")
    other.up("eth0", f"{SERVER}/24")
    bed.client.up("eth1")
    ip("-n", bed.client.name, "route", "add", SERVER, "dev", "eth1", "src", CLIENT, "table", "77")
    ip("-n", bed.client.name, "rule", "add", "ipproto", "udp", "table", "77")
    ip("-n", other.name, "route", "replace", CLIENT, "dev", "eth0")
    plain = bed.serve("last")
    weft = bed.talker(other, True, "server.py", SERVER, PORT, PORTS, "last")
    weft.hear()
    told = bed.connect("last")
    all_good(told, bed.count, "tcp")
    nothing_foreign(plain, bed.count)
    nothing_foreign(weft, 0)


@case
def yes_that_was_a_lie(bed):
    bed.begin()
    server = bed.serve("last")
    bed.holds_port("lying")
    told = bed.connect("last", ports=1)
    # It costs one connection, and no other for a minute.
    assert told["good"] == bed.count - 1 and sum(told["errors"].values()) == 1, told
    # That one did see the Request: its peer had said that it may.
    counts = server.ask("counts")
    assert counts["foreign"] <= 1, counts


@case
def far_away(bed):
    """At most one round trip more than TCP's, and none where the answer is remembered."""
    bed.begin(far=True)
    trip = 2 * DELAY_MS
    for speaks, prefers in (("last", False), ("last", True)):
        server = bed.serve(speaks, prefers=prefers)
        count = 2 * PORTS
        asked = bed.connect(speaks, count=PORTS)
        remembered = bed.connect(speaks, count=count, ports=1)
        plain = bed.connect(speaks, prefers=False, count=PORTS)
        kind = "Weft" if prefers else "a plain server"
        for name, told in (("asked", asked), ("remembered", remembered), ("plain client", plain)):
            said(f"{kind}, {name}", told)
        state = "ddp" if prefers else "tcp"
        all_good(asked, PORTS, state)
        all_good(remembered, count, state)
        assert asked["connect_ms"][0] < plain["connect_ms"][0] + trip + 5, (asked, plain)
        assert remembered["connect_ms"][0] < plain["connect_ms"][0] + 5, (remembered, plain)
        nothing_foreign(server, 2 * PORTS + count)
        server.kill()
        bed.talkers.remove(server)


def seen(bed, *peers):
    """What `weft stat` says of the sockets that are connected to these ports, or listen there, by port."""
    text = subprocess.run([bed.weft, "stat", "--json"], capture_output=True, text=True, check=True).stdout
    sockets = [socket for process in json.loads(text)["tcp"] for socket in process["sockets"]]
    port = lambda end: int(end.rpartition(":")[2])
    connected = {port(socket["peer"]): socket for socket in sockets if socket["peer"] and port(socket["peer"]) in peers}
    listening = {port(socket["local"]): socket for socket in sockets if not socket["peer"]}
    return connected, listening


@case
def stat_says_how_each_socket_goes_and_why(bed):
    bed.begin()
    weft, plain, off = PORT, PORT + 1, PORT + 2
    rule = f"off port={off}; prefer"
    for prefers, ports in ((rule, (weft,)), (False, (plain, off))):
        bed.talker(bed.server, prefers, "holder.py", "listen", SERVER, *ports).hear()
    bed.talker(bed.client, rule, "holder.py", "connect", SERVER, weft, plain, off).hear()
    connected, listening = seen(bed, weft, plain, off)
    ways = {port: (socket["transport"], socket["why"]) for port, socket in connected.items()}
    assert ways == {
        weft: ("ddp", "both ends are Weft"),
        plain: ("tcp", "the other end is not Weft, or did not ask"),
        off: ("tcp", "a rule says off, or none fits"),
    }, ways
    assert connected[weft]["peer"] == f"{SERVER}:{weft}" and connected[weft]["local"].startswith(CLIENT), connected
    # Those of plain programs are not Weft's to tell of.
    assert set(listening) & {weft, plain, off} == {weft}, listening
    assert listening[weft]["transport"] == "ddp", listening


def play(bed, name):
    """How a case went, and why."""
    try:
        CASES[name](bed)
    except Skip as skip:
        return "skipped", str(skip)
    except (AssertionError, Failed, OSError, ValueError) as error:
        return "failed", f"{type(error).__name__}: {error}"
    finally:
        bed.end()
    return "passed", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", required=True, help="the command")
    parser.add_argument("--only", default="", help="cases whose name this finds")
    parser.add_argument("--count", type=int, default=1000, help="connections of a case")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:
        print(f"skipped all: {enter(INSIDE)}")
        return Counts(skipped=1).close()
    # Where `ip` keeps the names of namespaces; the run's own, as its root is not the machine's.
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    bed = Bed(os.path.realpath(args.weft), args.count)
    begin = time.monotonic()
    counts = again.play_each([name for name in CASES if re.search(args.only, name)], lambda name: play(bed, name))
    print(f"{time.monotonic() - begin:.0f} s", flush=True)
    return counts.close()


if __name__ == "__main__":
    sys.exit(main())
