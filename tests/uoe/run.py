#!/usr/bin/env python3
"""Unmodified UDP programs over carriers: `--udp 'uoe prefer'` at both ends, at one, and with peers that fail.

    tests/uoe/run.py --weft FILE [--only REGEX] [--seconds N]

Needs no privilege. Closes with `N passed, N failed, N skipped`.
"""
import argparse
import itertools
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
import again  # noqa: E402
from network import free_ports  # noqa: E402
from process import ESTABLISHED, Failed, Process  # noqa: E402

from peer import BELL, REFUSE, RING, Peer, proof  # noqa: E402

RULE = "uoe prefer"
DISCOVERY_PORT = 23342
PATIENCE = 60
CARRIED = re.compile(r"(\d+) datagrams left over (\d+) connections of Weft's, (\d+) came, (\d+) were dropped")
CASES = {}


def case(*each):
    """One case, or one for each word."""

    def enter(function):
        for word in each or [None]:
            name = function.__name__ + (f".{word}" if word else "")
            CASES[name] = (lambda bed, word=word: function(bed, word)) if word else function
        return function

    return enter


class Bed:
    """Programs of one case, each under Weft or not."""

    def __init__(self, weft, work, seconds):
        self.weft, self.work, self.seconds, self.processes = weft, work, seconds, []

    def start(self, ruled, *words):
        """A program, under Weft with the usual rule or another one, or not at all."""
        rule = RULE if ruled is True else ruled
        weft = ["--log", "info", "--udp", rule, "--discovery-port", str(DISCOVERY_PORT), "--"]
        argv = [self.weft, "run", *weft] if ruled else []
        log = self.work / f"{len(self.processes)}"
        process = Process([*argv, *map(str, words)], dict(os.environ, PYTHONUNBUFFERED="1"), log)
        self.processes.append(process)
        return process

    def end(self):
        for process in self.processes:
            process.stop()
        self.processes = []

    def port(self, process):
        """The port that a receiver says it has."""
        return self.ports(process)[0]

    def ports(self, process):
        """Those of one that has several."""
        begun = time.monotonic()
        while time.monotonic() < begun + PATIENCE:
            said = Path(f"{process.log}.out").read_text()
            if found := re.search(r"^ports? ([\d ]+)\n", said, re.MULTILINE):
                return [int(port) for port in found[1].split()]
            if process.ended():
                break
            time.sleep(0.02)
        raise Failed(f"no port: {process.result().errors}")

    def finish(self, process):
        """What a program said when it ended, and what went over carriers."""
        if not process.wait_awake(PATIENCE):
            raise Failed(f"{process.name} does not end")
        ended = process.result()
        if ended.status != 0:
            raise Failed(f"{ended.how()}: {ended.errors[-400:]}")
        # Each process of a family says what it has carried.
        each = [tuple(map(int, found)) for found in CARRIED.findall(ended.errors)]
        return ended.output, tuple(map(sum, zip(*each))) if each else (0, 0, 0, 0)


def await_connected(port):
    """Waits until the UDP socket of this port has a peer."""
    begun = time.monotonic()
    while time.monotonic() < begun + PATIENCE:
        rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
        if any(row[3] == ESTABLISHED and int(row[1].partition(":")[2], 16) == port for row in rows):
            return
        time.sleep(0.005)
    raise Failed(f"the socket of port {port} is not connected")


def python(script):
    return [sys.executable, HERE / script]


def expect(what, is_so):
    if not is_so:
        raise Failed(str(what))


def said(output):
    return json.loads(output.strip().splitlines()[-1])


def transfer(bed, how, receiver_ruled=True, sender_ruled=True, count=20000):
    """Sends so many datagrams; gives what was said at both ends, and what was carried."""
    receiver = bed.start(receiver_ruled, *python("receive.py"), how)
    port = bed.port(receiver)
    # Some are shorter than what Weft itself sends to the socket.
    size = 20 if how == "kept" else 200
    sender = bed.start(sender_ruled, *python("send.py"), port, count, size, *(["answered"] if how == "answer" else []))
    sent, carried = bed.finish(sender)
    came, carried_here = bed.finish(receiver)
    sent, came = said(sent), said(came)
    expect((sent, came), came["damaged"] == came["disordered"] == 0 and came["sources"] == 1)
    return sent, came, carried, carried_here


@case("recv", "timeout", "poll", "select", "epoll", "edge", "scattered", "connected", "connected-epoll", "kept",
      "threads")
def both_ends(bed, how):
    sent, came, carried, here = transfer(bed, how)
    expect((sent, came), came["came"] == sent["sent"])
    expect((carried, here), carried[0] > 10000 and here[2] == carried[0] and here[3] == carried[3] == 0)


@case("filtered")
def a_receiver_that_is_plain(bed, how):
    """It has a filter that looks at each datagram."""
    sent, came, carried, here = transfer(bed, how)
    expect((sent, came), came["came"] == sent["sent"])
    expect((carried, here), carried[0] == here[2] == 0)


@case()
def answers(bed):
    sent, came, carried, here = transfer(bed, "answer", count=12800)
    expect((sent, came), came["came"] == sent["sent"] == sent["answered"])
    # Both ends send, and where both connect at once the second carrier drains first (decision 0034).
    expect((carried, here), carried[0] > 1000 and {carried[1], here[1]} <= {1, 2})


def opened(target):
    """A carrier with a channel to a receiver, which may be about to take some, and the nonce of the channel's marks."""
    begun = time.monotonic()
    while True:
        peer = Peer("127.0.0.1", DISCOVERY_PORT)
        try:
            return peer, peer.open(1, target)
        except (EOFError, OSError) as error:
            peer.close()
            if time.monotonic() > begun + PATIENCE:
                raise Failed(f"no channel: {error}") from error


@case()
def a_timeout_is_of_the_whole_call(bed):
    """Weft's own datagrams wake the receiver often, and for nothing."""
    receiver = bed.start(True, *python("patience.py"))
    target = "127.0.0.1", bed.port(receiver)
    peer, nonce = opened(target)
    with peer:
        for number in range(1, 25):
            peer.udp.sendto(proof(nonce, number), target)
            time.sleep(0.125)
        output, _ = bed.finish(receiver)
    expect(output, all(0.9 < wait < 2 for wait in said(output)["waits"]))


@case("receiver", "sender")
def one_end(bed, which):
    sent, came, carried, here = transfer(bed, "recv", which == "receiver", which == "sender")
    expect((sent, came), came["came"] == sent["sent"])
    expect((carried, here), carried[1] == here[1] == 0)


def compiled(bed, name):
    program = bed.work / name
    source = HERE / f"{name}.c"
    subprocess.run(["cc", "-std=gnu11", "-O2", "-pthread", "-o", program, source], check=True)
    return program


@case()
def a_thread_that_is_cancelled(bed):
    """Its sends wait: nobody takes what it sends."""
    output, _ = bed.finish(bed.start("uoe require wait=forever", compiled(bed, "cancelled"), free_port()))
    expect(output, output == "the handler ran\n")


@case("uoe prefer", "uoe require")
def a_receiver_that_confines_itself(bed, rule):
    """It is left with the calls that its own receives make."""
    receiver = bed.start(rule, compiled(bed, "confined"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"seven..", ("127.0.0.1", bed.port(receiver)))
    output, _ = bed.finish(receiver)
    expect(output, output.endswith("7 octets\n"))


@case()
def checked(bed):
    """The checker of tests/datagrams: every call there is, random sizes, several sockets."""
    program = bed.work / "checker"
    source = HERE.parent / "datagrams" / "checker.c"
    subprocess.run(["cc", "-std=gnu11", "-O2", "-pthread", "-o", program, source], check=True)
    seed = int.from_bytes(os.urandom(4), "big")
    receiver = bed.start(True, program, "receive", 0, seed)
    port = bed.port(receiver)
    sender = bed.start(True, program, "send", "127.0.0.1", port, seed, bed.seconds)
    output, carried = bed.finish(sender)
    bed.finish(receiver)
    expect(f"seed {seed}: {carried}", carried[0] > 1000 and carried[3] == 0)
    return f"seed {seed}: {output.strip()}; {carried[0]} of them over {carried[1]} connections"


@case()
def questions_and_answers_stay_plain(bed):
    """They come as quickly as a busy program's datagrams; by a carrier each would be later."""
    words = ["bench", "raw", "datagram-ping-pong", "--size=64", "--iterations=20000", "--waits"]
    port = next(free_ports())
    server = bed.start(True, bed.weft, *words[:2], "--listen", f"127.0.0.1:{port}", *words[2:])
    time.sleep(0.5)
    client = bed.start(True, bed.weft, *words[:2], "--connect", f"127.0.0.1:{port}", *words[2:])
    _, carried = bed.finish(client)
    _, answered = bed.finish(server)
    # How long a channel takes to open, and who is let run meanwhile, is the scheduler's.
    expect((carried, answered), carried[0] < 1000 and answered[0] < 1000)


@case()
def both_send_at_once(bed):
    """Each end asks for a connection, and waits in receives that its peer alone can wake."""
    ports = list(itertools.islice(free_ports(), 2))
    start = time.monotonic() + 1
    words = [[own, peer, start, 20000] for own, peer in (ports, reversed(ports))]
    both = [bed.start(True, *python("at_once.py"), *one) for one in words]
    for output, carried in [bed.finish(one) for one in both]:
        came = said(output)
        expect((came, carried), came["own"] == came["damaged"] == came["disordered"] == 0)
        expect((came, carried), came["came"] > 5000 and carried[0] > 5000)


@case()
def a_carrier_without_new_channels_wakes_whom_it_has(bed):
    """Both ends have connected: one carrier takes no more channels, and those that it has stay for long."""
    receiver = bed.start(True, *python("receive.py"), "connected")
    target = "127.0.0.1", bed.port(receiver)

    def numbered(number):
        return number.to_bytes(4, "big") + bytes([number]) * 60

    # Of two that a process connects the one of the lowest instance stays.
    lowest = bytes(7) + b"\1"
    with Peer("127.0.0.1", DISCOVERY_PORT, instance=lowest) as peer:
        peer.udp.sendto(numbered(0), target)
        # Channels that were asked for before are refused by the connect.
        await_connected(target[1])
        nonce = peer.open(1, target)
        with Peer("127.0.0.1", DISCOVERY_PORT, instance=lowest) as other:
            # Once this is answered the first one takes no more.
            other.ask_for(1, target)
            other.hear(REFUSE)
            peer.say(1, numbered(1))
            peer.hear(RING)
            peer.udp.sendto(proof(nonce, BELL), target)
            peer.udp.sendto(b"end", target)
            came, _ = bed.finish(receiver)
    came = said(came)
    expect(came, came["came"] == 2 and came["damaged"] == came["disordered"] == 0)


@case()
def a_plain_sender_beside_a_busy_carrier(bed):
    """A receiver that takes from a carrier without end looks at its socket, too."""
    receiver = bed.start(True, *python("receive.py"), "recv")
    port = bed.port(receiver)
    bed.start(True, *python("send.py"), port, 400000, 200)
    time.sleep(1)
    plain = bed.start(False, *python("send.py"), port, 200, 200, "burst=1")
    # It is over with the plain one's end, long before that of the other.
    came, carried = bed.finish(receiver)
    came = said(came)
    bed.finish(plain)
    expect(came, came["damaged"] == came["disordered"] == 0 and came["sources"] == 2 and came["each"][0] == 200)
    expect(carried, carried[2] > 10000)


@case()
def a_receiver_that_is_killed_and_comes_back(bed):
    receiver = bed.start(True, *python("receive.py"), "recv")
    port = bed.port(receiver)
    sender = bed.start(True, *python("send.py"), port, 200000, 100)
    time.sleep(1.5)
    receiver.stop()
    time.sleep(0.5)
    second = bed.start(True, *python("receive.py"), "recv", port)
    _, carried = bed.finish(sender)
    came = said(bed.finish(second)[0])
    expect((carried, came), carried[1] == 2 and carried[0] > 1000)
    expect(came, came["came"] > 1000 and came["damaged"] == came["disordered"] == 0)


@case()
def a_sender_that_is_killed(bed):
    receiver = bed.start(True, *python("receive.py"), "recv")
    port = bed.port(receiver)
    bed.start(True, *python("send.py"), port, 10**9, 100)
    time.sleep(1.5)
    bed.processes[-1].stop()
    second = bed.start(True, *python("send.py"), port, 20000, 100)
    sent, carried = bed.finish(second)
    came, here = bed.finish(receiver)
    expect((carried, here), carried[0] > 10000 and here[1] == 2)
    expect(came, said(came)["damaged"] == said(came)["disordered"] == 0 and said(came)["sources"] == 2)


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def late(bed, rule, how, *words):
    """The receiver is there a second and a half after the first send."""
    port, count = free_port(), 300
    sender = bed.start(rule, *python("send.py"), port, count, 200, "patient", *words)
    time.sleep(1.5)
    receiver = bed.start(True, *python("receive.py"), how, port)
    sent, carried = bed.finish(sender)
    output, here = bed.finish(receiver)
    came = said(output)
    expect((sent, came, carried), came["came"] == said(sent)["sent"] == count)
    expect(came, came["damaged"] == came["disordered"] == 0 and came["sources"] == 1)
    # The last says that it is over.
    expect((carried, here), carried[0] == here[2] == count + 1 and here[3] == carried[3] == 0)


@case("mode=1", "wait=forever")
def a_receiver_that_comes_late(bed, how):
    """What is sent before it is there waits: in the queue, or in the sender's call."""
    late(bed, f"uoe require {how}", "recv")


@case("timeout", "poll", "select", "epoll", "edge")
def a_late_receiver_that_waits(bed, how):
    """It does not call to receive before something is there, and nothing comes plainly."""
    late(bed, "uoe require", how)


@case()
def a_sender_that_runs_another_program(bed):
    """What waits for a channel goes on waiting."""
    late(bed, "uoe require", "recv", "forks")


@case()
def a_sender_that_binds_its_socket_to_an_interface(bed):
    """From then on a connection might go another way. What follows may overtake what is under way on one."""
    receiver = bed.start(True, *python("receive.py"), "recv")
    sender = bed.start(True, *python("send.py"), bed.port(receiver), 20000, 200, "ties")
    sent, carried = bed.finish(sender)
    came, _ = bed.finish(receiver)
    sent, came = said(sent), said(came)
    expect((sent, came), came["damaged"] == 0 and came["came"] == sent["sent"])
    expect(carried, 1000 < carried[0] <= 10000)


@case("daemon", "command", "served", "started", "passed")
def a_socket_that_another_process_has(bed, how):
    """Its parent, or a program that was started; one of them receives."""
    receiver = bed.start(True, *python("forked.py"), how)
    sender = bed.start(True, *python("send.py"), bed.port(receiver), 100000, 200)
    sent, carried = bed.finish(sender)
    output, here = bed.finish(receiver)
    came = said(output)
    expect((sent, came, carried, here), came["damaged"] == 0 and came["came"] > 80000)
    expect((carried, here), carried[0] > 50000 and here[2] > 50000)


@case()
def workers_at_one_socket(bed):
    """Two receive from it at a time: neither is handed what is Weft's own, and next to nothing is lost."""
    receiver = bed.start(True, *python("forked.py"), "workers")
    sender = bed.start(True, *python("send.py"), bed.port(receiver), 50000, 200)
    sent, _ = bed.finish(sender)
    output, _ = bed.finish(receiver)
    came = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    expect(came, len(came) == 2 and all(one["damaged"] == 0 for one in came))
    expect((sent, came), sum(one["came"] for one in came) > said(sent)["sent"] * 0.9)


@case("poll", "select", "epoll")
def a_client_that_never_binds(bed, how):
    """Its first datagram gives it a port; the answers come over a connection alone."""
    server = bed.start("uoe require", *python("answer.py"))
    client = bed.start(True, *python("ask.py"), bed.port(server), how)
    output, (_, _, came, _) = bed.finish(client)
    expect((output, came), said(output) == {"answers": 10} and came == 10)


@case("close", "exit")
def a_sender_that_is_brief(bed, how):
    """It is done with the socket before there is a channel."""
    receiver = bed.start(True, *python("receive.py"), "recv")
    port = bed.port(receiver)
    _, carried = bed.finish(bed.start("uoe require", *python("brief.py"), port, how))
    output, _ = bed.finish(receiver)
    expect((output, carried), said(output)["came"] == 5 and carried == (6, 1, 0, 0))


@case()
def a_sender_that_ends_while_its_receiver_rests(bed):
    """Its last datagrams, which came by a carrier that is closed by then, do not overtake plain ones before them."""
    receiver = bed.start(True, *python("behind.py"), "receive")
    sender = bed.start(True, *python("behind.py"), "send", bed.port(receiver))
    sent, carried = bed.finish(sender)
    came, _ = bed.finish(receiver)
    expect((sent, came), said(came)["came"] == said(sent)["sent"] and said(came)["behind"] == 0)
    expect(carried, carried[0] > 400)


@case()
def a_sender_that_ends_while_its_receiver_is_stopped(bed):
    """What the other end says afterwards resets the connection, and what had not arrived there would be lost."""
    receiver = bed.start("uoe require", *python("stopped.py"), "receive")
    sender = bed.start("uoe require", *python("stopped.py"), "send", bed.port(receiver), receiver.child.pid)
    while not sender.ended() and "sent" not in Path(f"{sender.log}.out").read_text():
        time.sleep(0.01)
    time.sleep(0.5)
    receiver.signal(signal.SIGCONT)
    (sent, carried), (came, here) = bed.finish(sender), bed.finish(receiver)
    missing = said(sent)["sent"] - said(came)["came"]
    expect((sent, came, carried, here), carried[0] > 2560 and missing == carried[3] + here[3])


@case()
def a_socket_after_one_that_waits(bed):
    """The address that a program has closed is free, and what waited there is counted as dropped."""
    _, carried = bed.finish(bed.start("uoe require", *python("brief.py"), free_port(), "again"))
    expect(carried, carried == (0, 0, 0, 6))


@case()
def a_port_that_another_program_takes(bed):
    """Both have said that it may be shared: the kernel gives everything to the one that bound it last."""
    receiver = bed.start(True, *python("receive.py"), "shared")
    port = bed.port(receiver)
    bed.start(True, *python("send.py"), port, 10**9, 100)
    time.sleep(1.5)
    wefts = programs = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second:
        second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        second.bind(("127.0.0.1", port))
        second.settimeout(PATIENCE)
        while programs < 1000:
            is_wefts = second.recv(1000).startswith(b"WeftUDP\0")
            wefts, programs = wefts + is_wefts, programs + (not is_wefts)
    # Two bells in a row that do not arrive, one when the receiver is asked for again, and up to three that were rung
    # while its program was awake: it takes what waits all the same, and the row begins again.
    expect(wefts, wefts <= 6)


@case()
def a_plain_receiver_where_carriers_are_required(bed):
    receiver = bed.start(False, *python("receive.py"), "timeout")
    port = bed.port(receiver)
    sender = bed.start("uoe require", *python("send.py"), port, 1000, 200)
    _, carried = bed.finish(sender)
    time.sleep(1)
    expect("nothing ends it", not receiver.ended())
    expect(carried, carried[0] == 0)


def connected_from(port):
    """The local addresses of this machine's TCP connections to that port."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = [row[1] for row in rows if row[3] == ESTABLISHED and int(row[2].partition(":")[2], 16) == port]
    # proc(5): the address as a number of the machine's order.
    return {socket.inet_ntoa(struct.pack("=I", int(local.partition(":")[0], 16))) for local in ours}


@case("edge", "poll", "select")
def a_sender_that_waits_for_room(bed, how):
    """The kernel's own socket is writable all the time."""
    receiver = bed.start(True, *python("receive.py"), "slow")
    output, carried = bed.finish(bed.start(True, *python("room.py"), how, bed.port(receiver)))
    expect((output, carried), said(output)["refused"] < 20 and carried[0] > 1000)


@case("one", "each")
def a_slow_receiver_beside_another(bed, sockets):
    """It takes what it can; what is sent to the other one does not wait for it, from one socket or from two."""
    receivers = [bed.start(True, *python("receive.py"), how) for how in ("recv", "rests")]
    ports = [bed.port(receiver) for receiver in receivers]
    output, carried = bed.finish(bed.start(True, *python("two.py"), *ports, sockets))
    expect((output, carried), said(output)["full"] and carried[0] > 1000 and carried[3] > 100)
    # A send that waits does so for a millisecond at least, and for up to twenty; fifty and more did where each socket
    # was looked at alone.
    expect(output, said(output)["waited"] < 20 and said(output)["rounds"] > 200)


@case("uoe prefer", "uoe require udp-path=none")
def a_sender_that_is_bound_to_an_address(bed, rule):
    """The connection comes from there as well, beside that of another sender from another address."""
    receiver = bed.start(rule, *python("receive.py"), "recv")
    port, ends = bed.port(receiver), []
    for own in ("127.0.0.1", "127.0.0.5"):
        sender = bed.start(rule, *python("send.py"), port, 10**9, 100, f"from={own}")
        time.sleep(1.5)
        ends.append((own, sender))
    local = connected_from(DISCOVERY_PORT)
    for _, sender in ends:
        sender.stop()
    last = bed.start(False, *python("send.py"), port, 1, 100)
    bed.finish(last)
    output, _ = bed.finish(receiver)
    expect(local, {own for own, _ in ends} <= local)
    expect(output, set(said(output)["hosts"]) >= {own for own, _ in ends})


@case("uoe prefer", "uoe require")
def a_program_that_sends_to_itself(bed, rule):
    """The kernel is as near as a connection: what waited for one leaves plainly."""
    output, carried = bed.finish(bed.start(rule, *python("oneself.py")))
    expect((output, carried), said(output) == {"came": [5] * 20} and carried[3] == 0)


@case()
def nothing_leaves_plainly(bed):
    """Not either what a connection cannot bring."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(0.5)
        output, _ = bed.finish(bed.start("uoe require", *python("never.py"), receiver.getsockname()[1]))
        try:
            came = receiver.recv(1000)
        except TimeoutError:
            came = None
    expect(came, came is None)
    refused = {way for way, why in said(output).items() if why == "EOPNOTSUPP"}
    expect(output, refused == {"more", "control", "option", "file", "elsewhere"})


@case()
def a_handler_sends_nothing_plainly(bed):
    """It interrupts a send on the same socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(0.5)
        output, _ = bed.finish(bed.start("uoe require", compiled(bed, "handler"), receiver.getsockname()[1]))
        try:
            came = receiver.recv(2000)
        except TimeoutError:
            came = None
    expect(output, int(output) > 1000)
    expect("one came plainly", came is None)


@case()
def shown(bed):
    """`weft stat` has who sends to whom, and how."""
    receiver = bed.start(True, *python("receive.py"), "recv")
    port = bed.port(receiver)
    bed.start(True, *python("send.py"), port, 10**9, 100)
    plain = bed.start(False, *python("receive.py"), "recv")
    plain_port = bed.port(plain)
    bed.start(True, *python("send.py"), plain_port, 10**9, 100)
    wanted = {("to, over a connection", f"127.0.0.1:{port}"), ("to, plainly", f"127.0.0.1:{plain_port}")}
    begun = time.monotonic()
    while time.monotonic() < begun + PATIENCE:
        text = subprocess.run([bed.weft, "stat", "--json"], capture_output=True, text=True, check=True).stdout
        udp = json.loads(text)["udp"]
        peers = {(peer["way"], peer["peer"]) for one in udp for peer in one["peers"]}
        took = [one for one in udp if one["received"] > 1000]
        if wanted <= peers and took and any(way == "from, over a connection" for way, _ in peers):
            return
        time.sleep(0.2)
    raise Failed(f"{wanted} is not in {text}")


@case()
def strangers_at_the_port_of_carriers(bed):
    """Who connects and says nothing, or something else, harms nobody."""
    receiver = bed.start(True, *python("receive.py"), "recv")
    port = bed.port(receiver)
    strangers = []

    def bother():
        for octets in (b"", b"GET / HTTP/1.1\r\n\r\n", b"WeftUOE\0" + bytes(56), b"WeftUOE\0\1\1" + os.urandom(2000)):
            try:
                stranger = socket.create_connection(("127.0.0.1", DISCOVERY_PORT), timeout=5)
                stranger.sendall(octets)
                strangers.append(stranger)
            except OSError:
                pass  # the receiver does not listen yet, or has closed already

    sender = bed.start(True, *python("send.py"), port, 30000, 200)
    begun = time.monotonic()
    while not sender.ended() and time.monotonic() < begun + PATIENCE:
        bother()
        del strangers[:-200]
        time.sleep(0.02)
    sent, carried = bed.finish(sender)
    came, _ = bed.finish(receiver)
    expect((sent, came, carried), said(came)["came"] == said(sent)["sent"] and carried[0] > 10000)


@case()
def a_hundred_peers_of_one_socket(bed):
    """One socket sends to a hundred of ten processes: each has its own, whole and in order, by a carrier a process."""
    rule = "uoe require wait=forever"
    takers = [bed.start(rule, *python("hundred.py"), "takes") for _ in range(10)]
    ports = [port for taker in takers for port in bed.ports(taker)]
    sender = bed.start(rule, *python("hundred.py"), "sends", *ports)
    sent, carried = bed.finish(sender)
    came = [said(bed.finish(taker)[0]) for taker in takers]
    expect((sent, came), all(one == {"came": said(sent)["sent"] / 10, "wrong": 0} for one in came))
    expect(carried, carried[0] == said(sent)["sent"] and carried[1] == len(takers))


def play(bed, name):
    try:
        why = CASES[name](bed)
        return "passed", why or ""
    except (Failed, OSError, EOFError) as failed:
        return "failed", f"{failed}"
    finally:
        bed.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", required=True, help="the command")
    parser.add_argument("--only", default="", help="cases whose name this finds")
    parser.add_argument("--seconds", type=int, default=5, help="how long the checker sends")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        bed = Bed(os.path.realpath(args.weft), Path(work), args.seconds)
        names = [name for name in CASES if re.search(args.only, name)]
        counts = again.play_each(names, lambda name: play(bed, name))
    return counts.close()


if __name__ == "__main__":
    sys.exit(main())
