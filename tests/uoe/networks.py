#!/usr/bin/env python3
"""Datagrams over carriers between two machines: where UDP is blocked, ports are taken or blocked, addresses translated.

    tests/uoe/networks.py --weft FILE [--only REGEX]

The machines are network namespaces. Needs no privilege but user namespaces. Closes with `N passed, N failed, N skipped`.
"""
import argparse
import errno
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
# TRANSLATED: as what the server sees a client behind a translator.
CLIENT, SERVER, TRANSLATED = "10.9.1.1", "10.9.1.2", "10.9.1.77"
CLIENT_ADAPTER, SERVER_ADAPTER = "10.9.1.51", "10.9.1.52"
PORT = 5004
DISCOVERY_PORT = 22342
OVER = "over=adapter"
PATIENCE = 60
CARRIED = re.compile(r"(\d+) datagrams left over (\d+) connections of Weft's, (\d+) came, (\d+) were dropped")
FORGIVEN = re.compile(r"(\d+) octets were missing for too long")
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Bed:
    """A client's machine and a server's, with a veth pair between them, or a box that translates addresses."""

    def __init__(self, weft, work):
        self.weft, self.work, self.processes = weft, work, []
        self.has_adapters = self.is_anyway = False
        self.tcp = None
        self.namespaces = Namespaces()

    def begin(self):
        self.client, self.server = (self.namespaces.add(name) for name in ("client", "server"))
        self.namespaces.join(self.client, self.server)
        self.client.up("eth0", f"{CLIENT}/24")
        self.server.up("eth0", f"{SERVER}/24")

    def begin_around_box(self, seen_as=CLIENT):
        """A box joins the two machines' networks, and the server sees the client by this address. Returns the box."""
        self.client, box, self.server = (self.namespaces.add(name) for name in ("client", "box", "server"))
        self.namespaces.join(self.client, box, there="in")
        self.namespaces.join(self.server, box, there="out")
        for device in ("in", "out"):
            box.up(device)
        # The kernel holds the first datagrams until it knows the neighbour, and may let later ones pass them by then.
        client_mac, server_mac = "02:00:00:00:00:01", "02:00:00:00:00:02"
        for machine, own, own_mac, other, other_mac in (
                (self.client, CLIENT, client_mac, SERVER, server_mac),
                (self.server, SERVER, server_mac, seen_as, client_mac)):
            ip("-n", machine.name, "link", "set", "dev", "eth0", "address", own_mac)
            machine.up("eth0", f"{own}/24")
            known = ("lladdr", other_mac, "nud", "permanent")
            ip("-n", machine.name, "neighbour", "replace", other, "dev", "eth0", *known)
        return box

    def begin_translated(self):
        """The client's address is another one to the server: a box between them changes it both ways."""
        box = self.begin_around_box(TRANSLATED)
        for machine in (self.client, self.server):
            # No frame is longer than the network takes.
            ip("-n", machine.name, "link", "set", "dev", "eth0", "gso_max_segs", 1)
        words = [sys.executable, HERE / "translator.py", "in", "out", CLIENT, TRANSLATED]
        self.await_line(self.start(box, None, *words), "ready")

    def begin_far(self, delay):
        """The server is so far away, each way."""
        self.begin_linked("--delay", delay)

    def begin_linked(self, *link):
        """Between the two is a link with these words of `weft link`."""
        box = self.begin_around_box()
        self.await_line(self.start(box, None, self.weft, "link", "in", "out", *link), "forwarding")

    @staticmethod
    def block(namespace, *what):
        """Nothing of this comes in from the network, as behind a firewall that drops; what is the machine's own does."""
        ip("-n", namespace.name, "rule", "add", "pref", 100, "lookup", "local")
        ip("-n", namespace.name, "rule", "delete", "pref", 0)
        ip("-n", namespace.name, "rule", "add", "pref", 10, "iif", "eth0", *what, "blackhole")

    @staticmethod
    def await_line(process, word):
        begun = time.monotonic()
        while not any(word in Path(f"{process.log}.{name}").read_text() for name in ("out", "err")):
            if process.ended() or time.monotonic() > begun + PATIENCE:
                raise Failed(f"it does not say {word}: {process.result().errors}")
            time.sleep(0.02)

    def start(self, namespace, rule, *words):
        weft = ["--log", "info", "--udp", rule, *self.adapter(namespace), "--"]
        argv = [*namespace.enter, *([self.weft, "run", *weft] if rule else []), *map(str, words)]
        process = Process(argv, dict(os.environ, PYTHONUNBUFFERED="1"), self.work / f"{len(self.processes)}")
        self.processes.append(process)
        return process

    def adapter(self, namespace):
        """What gives a program there an adapter of its own, where the case has some."""
        address = {self.client: CLIENT_ADAPTER, self.server: SERVER_ADAPTER}.get(namespace)
        if not self.has_adapters or address is None:
            return []
        adapter = ["--adapter=inline", "--interface=packet:eth0", f"--address={address}/24"]
        tcp = ["--tcp", self.tcp] if self.tcp else []
        return [*adapter, *tcp, *["--anyway"] * self.is_anyway]

    def receive(self, rule="uoe prefer", how="recv"):
        receiver = self.start(self.server, rule, sys.executable, HERE / "receive.py", how, PORT, SERVER)
        self.await_line(receiver, "port")
        return receiver

    def send(self, rule="uoe prefer", count=20000, *words):
        return self.start(self.client, rule, sys.executable, HERE / "send.py", PORT, count, 200, *words, SERVER)

    def end(self):
        for process in self.processes:
            process.stop()
        self.processes = []
        self.has_adapters = self.is_anyway = False
        self.tcp = None
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
def two_machines_with_adapters(bed):
    """The carrier is a connection of the adapters': the kernels have none."""
    bed.begin()
    bed.has_adapters = True
    receiver = bed.receive(f"uoe prefer {OVER}")
    sender = bed.send(f"uoe prefer {OVER}", 40000)
    time.sleep(0.5)
    shown = subprocess.run([*bed.client.enter, "ss", "-tnH"], capture_output=True, text=True, check=True).stdout
    carried, here = all_came(sender, receiver, [CLIENT])
    expect((carried, here), carried[0] > 30000 and here[2] == carried[0] and here[1] == carried[1] == 1)
    expect(shown, shown.strip() == "")


@case
def adapter_at_one_end(bed):
    """Who has none is reached by the kernel's connections."""
    bed.begin()
    receiver = bed.receive()
    bed.has_adapters = True
    carried, here = all_came(bed.send(f"uoe prefer {OVER}"), receiver, [CLIENT])
    expect((carried, here), carried[0] > 10000 and here[2] == carried[0] and here[1] == carried[1] == 1)


@case
def adapter_that_somebody_has(bed):
    """The second program with the same address says so, and has the kernel's connections."""
    bed.begin()
    bed.has_adapters = True
    receiver = bed.receive(f"uoe prefer {OVER}")
    first = bed.send(f"uoe prefer {OVER}", 1000, "patient")
    time.sleep(1)
    bed.is_anyway = True
    second = bed.send(f"uoe prefer {OVER}", 20000)
    _, carried = finish(second)
    words = second.result().errors
    says_why = f"has the adapter's address {CLIENT_ADAPTER}" in words
    expect((carried, words), carried[0] > 10000 and carried[1] == 1 and says_why)
    finish(first)
    finish(receiver)


@case
def adapter_whose_numbers_the_program_takes(bed):
    """Nothing is written to what has the numbers then, and what follows is plain or goes by the kernel."""
    bed.begin()
    bed.has_adapters = True
    receiver = bed.receive(f"uoe prefer {OVER}")
    words = [sys.executable, HERE / "closes.py", PORT, 40000, SERVER]
    sent, _ = finish(bed.start(bed.client, f"uoe prefer {OVER}", *words))
    came, here = finish(receiver)
    expect(sent, sent["written"] == 0)
    expect((came, here), here[2] > 5000 and came["came"] > 30000 and came["damaged"] == 0)


@case
def adapters_on_a_link_that_loses(bed):
    """Everything arrives, though not in order: what comes behind a lost frame does not wait for it."""
    bed.begin_linked("--delay", "500us", "--loss", "2%")
    bed.has_adapters = True
    receiver = bed.receive(f"uoe require {OVER}")
    sent, carried = finish(bed.send(f"uoe require {OVER}", 20000))
    came, here = finish(receiver)
    expect((sent, came, carried, here), came["came"] + carried[3] + here[3] >= sent["sent"] - 1)
    expect(came, came["came"] > 15000 and came["damaged"] == 0 and came["disordered"] > 0)


def at_a_rate(bed, rule):
    """Who sends as fast as it can, at a rate of its own, takes as long as that says and loses nothing."""
    receiver = bed.receive(rule)
    rate, count, size = 20_000_000, 3000, 1000
    words = [sys.executable, HERE / "paced.py", PORT, count, size, rate, SERVER]
    sent, carried = finish(bed.start(bed.client, rule, *words))
    came, _ = finish(receiver)
    expect((sent, came, carried), came["came"] == sent["sent"] and came["damaged"] == 0 and sent["has"] == rate)
    expect(sent, sent["refused"] == [errno.EINVAL, errno.EINVAL, errno.ENOPROTOOPT])
    # A third one may begin when the receiver has ended before the sender.
    expect((sent, carried), carried[1] in (2, 3) and carried[3] == 0)
    # What is in the carrier when the last send returns is not in these.
    octets = 8 * count * size
    least = (octets - 8 * 600_000) / rate
    expect((sent, least), all(took > least / speed for took, speed in zip(sent["took"], (1, 2))))
    expect((sent, least), sum(sent["took"]) < 3 * octets / rate)


@case
def at_a_rate_over_the_adapter(bed):
    bed.begin()
    bed.has_adapters = True
    at_a_rate(bed, f"uoe require {OVER}")


@case
def at_a_rate_over_the_kernels_connections(bed):
    bed.begin()
    at_a_rate(bed, "uoe require")


@case
def a_rate_holds_from_the_first_send_on(bed):
    """What is sent before there is a connection goes by the rate too, and waits in the queue: it is not lost."""
    bed.begin()
    receiver = bed.receive("uoe require")
    rate, count, size = 20_000_000, 2500, 1000
    sent, carried = finish(bed.start(bed.client, "uoe require", sys.executable, HERE / "at_first.py", PORT, count, size,
                                     rate, SERVER))
    came, _ = finish(receiver)
    expect((sent, came, carried), came["came"] > 0.98 * sent["sent"] and came["damaged"] == 0)


@case
def a_rate_holds_where_nobody_answers(bed):
    """The queue drops what it has no room for, and a sender that goes by its rate is none the faster for it."""
    bed.begin()
    rate, count, size = 20_000_000, 2500, 1000
    sent, carried = finish(bed.start(bed.client, "uoe require", sys.executable, HERE / "at_first.py", PORT, count, size,
                                     rate, SERVER))
    # What the queue has room for goes into it at once.
    least = 8 * (count * size - 600_000) / rate
    expect((sent, least, carried), sent["took"] > least)


@case
def a_rate_holds_where_the_receiver_is_stopped(bed):
    """A connection that takes nothing has datagrams dropped, and a sender that goes by its rate is none the faster."""
    bed.begin()
    receiver = bed.receive("uoe require")
    rate, count, size = 200_000_000, 40_000, 1000
    sent, carried = finish(bed.start(bed.client, "uoe require", sys.executable, HERE / "at_first.py", PORT, count, size,
                                     rate, SERVER, receiver.child.pid))
    # What TCP and the queue have room for goes as it comes.
    least = 8 * (count * size - 10_000_000) / rate
    expect((sent, least, carried), sent["took"] > least and carried[3] > 1000)


def lateness(bed, rule, size):
    """What came of datagrams at a pace, over adapters without control of congestion on a long path that loses."""
    bed.begin_linked("--delay", "100ms", "--loss", "3%")
    bed.has_adapters, bed.tcp = True, "none"
    receiver = bed.start(bed.server, rule, sys.executable, HERE / "late.py", "receive", PORT, SERVER)
    bed.await_line(receiver, "port")
    sender = bed.start(bed.client, rule, sys.executable, HERE / "late.py", "send", PORT, 2000, size, SERVER)
    _, carried = finish(sender)
    came, _ = finish(receiver)
    forgiven = FORGIVEN.search(receiver.result().errors)
    # What waits while the channel is opened, some round trips, is too old with an age.
    expect((came, carried), came["came"] > 1000 and came["damaged"] == 0 and carried[0] > 1000)
    return came, int(forgiven[1]) if forgiven else 0


@case
def what_is_too_old_is_not_sent_again(bed):
    """What would come again a round trip later, 200 ms, is of no use to a program that wants nothing older than 20."""
    came, forgiven = lateness(bed, f"uoe require {OVER} age=20ms", 200)
    expect((came, forgiven), came["behind"] < 100 and forgiven > 3000)


@case
def what_is_too_old_in_parts_is_not_sent_again(bed):
    came, forgiven = lateness(bed, f"uoe require {OVER} age=20ms", 2000)
    expect((came, forgiven), came["behind"] < 100 and forgiven > 3000)


@case
def without_an_age_what_was_lost_comes_again(bed):
    came, forgiven = lateness(bed, f"uoe require {OVER}", 200)
    expect((came, forgiven), came["behind"] > 150 and came["came"] >= 1999 and forgiven == 0)


@case
def nobody_at_hundreds_of_addresses(bed):
    """Tries for those that do not answer take no place from one that is new."""
    bed.begin()
    receiver = bed.receive("uoe require")
    first = SERVER.rpartition(".")[0]
    sender = bed.start(bed.client, "uoe require", sys.executable, HERE / "many.py", PORT, SERVER, first)
    said, _ = finish(sender)
    came, _ = finish(receiver)
    expect((said, came), came["came"] == 5 and came["damaged"] == 0)
    # A connection to nobody keeps its place for some seconds.
    waited = came["first_at"] - said["first_at"]
    expect(f"the first waited {waited:.2f} s", waited < 1)


@case
def translated_address(bed):
    """The server sees the address that it sees on UDP, whoever the client takes itself for."""
    bed.begin_translated()
    receiver = bed.receive(how="timeout")
    # The box is a program in Python, and slow: few leave at once.
    _, carried = finish(bed.send("uoe prefer", 20000, "burst=20"))
    came, here = finish(receiver)
    # When others take its core the box drops plain datagrams all the same; what took the carrier has arrived.
    expect((carried, here), carried[0] == here[2] > 5000 and here[3] == carried[3] == 0)
    # A last plain one that is later than the carrier waits for it, 20 ms, comes after its successors.
    expect(came, came["came"] >= here[2] - 1 and came["damaged"] == 0 and came["disordered"] <= 1)
    expect(came, came["hosts"] == [TRANSLATED] and came["sources"] == 1)


@case
def udp_blocked(bed):
    """Nobody is found; plain datagrams do not arrive either."""
    bed.begin()
    for machine in (bed.client, bed.server):
        bed.block(machine, "ipproto", "udp")
    bed.receive()
    _, carried = finish(bed.send())
    expect(carried, carried == (0, 0, 0, 0))
    expect("the receiver has not heard of the end", not bed.processes[0].ended())


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
    bed.block(bed.server, "ipproto", "tcp", "dport", DISCOVERY_PORT)
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


@case
def connected_receiver_far_away(bed):
    """A connected socket hears of what waits by its peer alone, a round trip later: too late where that is long."""
    for how, delay, is_carried in (("connected", "3ms", False), ("recv", "3ms", True), ("connected", "100us", True)):
        bed.begin_far(delay)
        receiver = bed.receive(how=how)
        sent, carried = finish(bed.send("uoe prefer", 20000, "burst=20"))
        came, here = finish(receiver)
        bed.end()
        expect((how, delay, carried, here), (here[2] > 5000) == is_carried and (here[2] > 0) == is_carried)
        expect((how, delay, sent, came), came["came"] > 15000 and came["damaged"] == came["disordered"] == 0)


def play(bed, name):
    try:
        CASES[name](bed)
        return "passed", ""
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
