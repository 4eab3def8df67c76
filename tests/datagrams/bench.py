#!/usr/bin/env python3
"""What the hooks cost, and what UDP segmentation offload gives, against the plain kernel in the same run.

    tests/datagrams/bench.py LIBRARY --json FILE [--times N] [PART...]     parts: calls streams lo veth delay (all)
    tests/datagrams/bench.py LIBRARY --json FILE --beside PATH [--pairs N] [--until 2%] [PART...]
    tests/datagrams/bench.py --table FILE...               the tables of docs/sockets-bench.md, from such files

FILE is a record of the bench, which `weft bench report` prints as well. The sender has one core and the receiver another;
the ways alternate within a run, and a figure is the median of the runs. `veth` makes a pair of namespaces with an MTU of
1500 (privilege). A part takes up to 40 seconds for each of N (5) times. With --beside the ways that a build of Weft has
a part in are taken with LIBRARY and with the hooks of a second build in turn (tests/rig/pairs.py), and the exit status is
1 where a row is slower.
"""

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import pairs  # noqa: E402
from network import Namespaces, free_ports, is_free, may_have_namespaces  # noqa: E402
from process import Failed, Process  # noqa: E402
from record import Record, Row, median, read  # noqa: E402

HERE = Path(__file__).resolve().parent
SERVER, CLIENT = 0, 1  # their cores
SIZES = {"loopback": [64, 512, 1448, 8192, 32768, 65507], "veth": [64, 512, 1448, 8192, 65507]}
# What is under the receiver and under the sender, and whether these do it themselves.
WAYS = {
    "kernel": (None, None, False),
    "weft": ("gso", "gso", False),
    "weft, sender": (None, "gso", False),
    "weft, receiver": ("gso", None, False),
    "own GSO/GRO": (None, None, True),
}
PLAIN = [way for way, (_, _, own) in WAYS.items() if not own]
PASS = "gso port=1"
CALLS = {"no preload": None, "hooks, no rule": "off", "hooks, pass": PASS, "gso": "gso"}
STREAMS = {"no preload": None, "hooks, pass": PASS}
# Those that a build of Weft has a part in.
OURS = {way for way, rule in (CALLS | STREAMS).items() if rule} | {way for way in WAYS if any(WAYS[way][:2])}
CALLED = ["send", "recv", "poll", "epoll_wait"]
PACES = [(64, 1_000), (1448, 10_000), (1448, 100_000), (1448, 300_000)]  # octets, datagrams a second
# Metrics of rate.c by its names.
DELAYS = {"p99": "p99_us", "p99.9": "p999_us", "jitter": "jitter_us"}


# --- what is measured, as rows of the record


def call_row(name):
    return Row("loopback", f"call-{name}", "call_ns", f"a call of {name}", reference=("no preload",))


IPERF = Row("loopback", "tcp-stream", "goodput_gbit_s", "iperf3, one stream of TCP", reference=("no preload",))
REDIS = Row("loopback", "redis-get", "requests_per_s", "redis-benchmark, GET", reference=("no preload",))
IDLE = Row("loopback", "datagram-lat-64", "half_rtt_us", "half round trip, idle, 64 octets", reference=("kernel",))


def goodput_row(path, size):
    return Row(path, f"datagrams-{size}", "goodput_gbit_s", f"datagrams of {size} octets, as many as go", reference=("kernel",))


def pace_row(size, rate):
    return Row("loopback", f"datagrams-{size}-paced-{rate}", "delay_us", f"one way, {size} octets, {rate:,} a second",
               reference=("kernel",))


# --- measuring


class Bench:
    """Starts programs under the hooks, each on its core, and keeps what they say in the record."""

    def __init__(self, library, folder, record, times):
        self.times = times
        self.builds = None  # pairs.TwoBuilds
        self.library = os.path.realpath(library)
        self.folder, self.record = Path(folder), record
        self.rate = self.folder / "rate"
        self.ports = free_ports()
        self.started = 0
        subprocess.run(["cc", "-std=gnu11", "-O2", "-o", self.rate, HERE / "rate.c"], check=True)

    def port(self):
        return next(port for port in self.ports if is_free(port, datagrams=True))

    def start(self, rule, *words, core=SERVER, enter=()):
        plain = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_") and k != "LD_PRELOAD"}
        environment = {**plain, "LD_PRELOAD": self.library, "WEFT_UDP": rule} if rule else plain
        self.started += 1
        return Process([*enter, "taskset", "-c", str(core), *map(str, words)], environment, self.folder / str(self.started))

    def run(self, rule, *words, core=CLIENT, enter=()):
        """Runs a program to its end; what it printed."""
        return self.finished(self.start(rule, *words, core=core, enter=enter))

    @staticmethod
    def finished(process, seconds=60):
        ended = process.wait(seconds)
        process.stop()
        result = process.result()
        if not ended or result.status != 0:
            how = result.how() if ended else f"no end within {seconds} s"
            raise Failed(f"{how}\n{result.errors}{result.output}")
        return result.output

    def pair(self, rules, receiver, sender, enters=((), ()), datagrams=True, seconds=60):
        """Runs a receiver until it has its port, then a sender to its end; what both printed."""
        port = self.port()
        server = self.start(rules[0], *receiver(port), enter=enters[0])
        try:
            server.await_port(port, datagrams)
            said = self.run(rules[1], *sender(port), enter=enters[1])
            return self.finished(server, seconds), said
        finally:
            server.stop()

    def keep(self, rows, way, took):
        """Keeps what `took`, a function, gives for several rows: of one build as it comes now, of two pair after pair."""
        def measure(library):
            self.library = library
            self.keep_once(rows, way, took)
        if self.builds is None:
            self.keep_once(rows, way, took)
        elif way in OURS:
            self.builds.take([(row.id, way) for row in rows], measure)

    def keep_once(self, rows, way, took):
        """Keeps what `took` gives now: metrics of each row, or that all of them failed."""
        began = time.monotonic()
        try:
            found = took()
        except Failed as failure:
            for row in rows:
                self.record.sample(row, way, began, failure=failure)
            print(f"FAILED {rows[0].name}, {way}: {failure}", file=sys.stderr)
            return
        for row, metrics in zip(rows, found, strict=True):
            self.record.sample(row, way, began, metrics)


def numbers(line):
    return {name: float(value) for name, value in re.findall(r"([\w.]+)=([\d.]+)", line)}


def calls(bench):
    """Nanoseconds of a call, plain, with hooks and no rule, and with hooks that follow every descriptor."""
    for way, rule in list(CALLS.items()) * bench.times:
        def took(rule=rule):
            told = numbers(bench.run(rule, bench.rate, "calls", 4_000_000, core=SERVER))
            return [{"call_ns": told[name]} for name in CALLED]
        bench.keep([call_row(name) for name in CALLED], way, took)


def streams(bench):
    """iperf3 over TCP and redis-benchmark, loopback, without and with the hooks at both ends."""
    for way, rule in list(STREAMS.items()) * bench.times:
        bench.keep([IPERF], way, lambda rule=rule: [iperf3(bench, rule)])
        bench.keep([REDIS], way, lambda rule=rule: [redis(bench, rule)])


def iperf3(bench, rule):
    _, said = bench.pair((rule, rule), lambda port: ("iperf3", "-s", "-1", "-p", port),
                         lambda port: ("iperf3", "-c", "127.0.0.1", "-p", port, "-t", "2", "-J"), datagrams=False)
    return {"goodput_gbit_s": json.loads(said)["end"]["sum_received"]["bits_per_second"] / 1e9}


def redis(bench, rule):
    port = bench.port()
    server = bench.start(rule, "redis-server", "--port", port, "--save", "")
    try:
        server.await_port(port)
        said = bench.run(rule, "redis-benchmark", "-p", port, "-n", 150_000, "-c", 20, "-t", "get", "--csv")
    finally:
        server.end(10)
    return {"requests_per_s": float(said.strip().splitlines()[-1].split(",")[1].strip('"'))}


def goodput(bench, path, address="127.0.0.1", enters=((), ())):
    for size, way in list(itertools.product(SIZES[path], WAYS)) * bench.times:
        def took(size=size, way=way):
            server, client, own = WAYS[way]
            got, sent = bench.pair((server, client), lambda port: (bench.rate, "receive", port, "1", *["gro"] * own),
                                   lambda port: (bench.rate, "send", address, port, size, "0.6", *["gso"] * own), enters)
            got, sent = numbers(got), numbers(sent)
            return [{"goodput_gbit_s": got["octets"] * 8 / sent["seconds"] / 1e9,
                     "cpu_ns_per_octet": (sent["cpu"] + got["cpu"]) * 1e9 / got["octets"],
                     "sent_gbit_s": sent["gbit"], "messages_per_s": got["datagrams"] / sent["seconds"]}]
        bench.keep([goodput_row(path, size)], way, took)


def veth(bench):
    """The same between two namespaces, MTU 1500."""
    description = "veth pair between two network namespaces"
    if not may_have_namespaces():
        bench.record.path("veth", description, skipped="network namespaces need root and `ip`")
        print("veth SKIPPED: network namespaces need root and `ip`", file=sys.stderr)
        return
    with closing(Namespaces()) as namespaces:
        server, client = ends = [namespaces.add(side) for side in "ab"]
        namespaces.join(server, client)
        bench.record.path("veth", description, 1500, enter=server.enter)
        for number, end in enumerate(ends, start=1):
            end.up("eth0", f"10.213.0.{number}/24")
        goodput(bench, "veth", "10.213.0.1", [end.enter for end in ends])


def delay(bench):
    """One way delay and jitter of datagrams at a pace, and half a round trip of an idle program."""
    for way in list(PLAIN) * bench.times:
        rules = WAYS[way][:2]

        def idle(rules=rules):
            _, said = bench.pair(rules, lambda port: (bench.rate, "answer", port),
                                 lambda port: (bench.rate, "ask", "127.0.0.1", port, 20_000))
            return [delays(said, "half_rtt_us")]
        bench.keep([IDLE], way, idle)
        for size, rate in PACES:
            def paced(size=size, rate=rate, rules=rules):
                said, _ = bench.pair(rules, lambda port: (bench.rate, "delay", port, 1),
                                     lambda port: (bench.rate, "pace", "127.0.0.1", port, size, rate, 0.5))
                return [delays(said, "delay_us")]
            bench.keep([pace_row(size, rate)], way, paced)


def delays(said, metric):
    told = numbers(said)
    return {metric: told["p50"]} | {key: told[name] for name, key in DELAYS.items() if name in told}


PARTS = {"calls": calls, "streams": streams, "lo": lambda bench: goodput(bench, "loopback"), "veth": veth, "delay": delay}


def measure(args):
    parts = args.parts or list(PARTS)
    weft = args.weft or Path(args.library).resolve().parent / "weft"
    found = find_builds(args)
    record = Record(weft, args.times, cores=[SERVER, CLIENT], only=args.parts)
    if set(parts) - {"veth"}:
        record.path("loopback", "127.0.0.1", int(Path("/sys/class/net/lo/mtu").read_text()), enter=())
    for name in ("iperf3", "redis-server") * ("streams" in parts):
        if not shutil.which(name):
            sys.exit(f"{name} is not installed; name the parts without `streams`")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.library, folder, record, 1 if found else args.times)
        if found:
            bench.builds = pairs.TwoBuilds(record, *found, args.until, args.pairs)
        try:
            for part in parts:
                begin = time.monotonic()
                PARTS[part](bench)
                print(f"{part}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
            record.finish()
        finally:
            # What was measured is kept, whatever ended the run.
            record.write(args.json)
    if not found:
        return 0
    print(*pairs.table(record.run), "", sep="\n")
    worse = list(pairs.slower(record.run))
    print(*worse, sep="\n", end="\n" if worse else "", file=sys.stderr)
    return 1 if worse else 0


def find_builds(args):
    """The hooks of both builds, and how they were named; none without a second build."""
    if not args.beside:
        return None
    given = {pairs.THIS: Path(args.library), pairs.BESIDE: args.beside}
    return {name: pairs.find(path, pairs.LIBRARIES, lambda library: ["env", f"LD_PRELOAD={library}", "true"])
            for name, path in given.items()}, given


# --- the tables


def line(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def show(value, base=None, digits=2):
    if value is None:
        return "refused"
    ratio = f" ({value / base:.2f} x)" if base else ""
    return f"{value:.{digits}f}{ratio}"


def figure(run, row, way, key=None):
    return median(run, f"{row.path}/{row.name}", way, key or row.metric)


def has(run, row):
    return any(entry["id"] == f"{row.path}/{row.name}" for entry in run["rows"])


def tables(run):
    environment = run["environment"]
    print(f"{run['started'][:10]}, Linux {environment['kernel'].split()[0]}, {environment['cores']} cores of "
          f"{environment['cpu']}, median of {run['options']['repetitions']}\n")
    if has(run, call_row("send")):
        line("nanoseconds a call", *CALLED)
        line(*["---"] * 5)
        for way in CALLS:
            line(way, *[show(figure(run, call_row(name), way), digits=0) for name in CALLED])
        print()
    if has(run, IPERF):
        line("", "iperf3, TCP, Gb/s", "redis GET, requests a second")
        line(*["---"] * 3)
        for way in STREAMS:
            base = [figure(run, row, "no preload") if way != "no preload" else None for row in (IPERF, REDIS)]
            line(way, *[show(figure(run, row, way), base[at], 2 - 2 * at) for at, row in enumerate((IPERF, REDIS))])
        print()
    for path in SIZES:
        if has(run, goodput_row(path, 64)):
            goodput_tables(run, path)
    if has(run, IDLE):
        line("microseconds", "way", "p50", "p99", "p99.9", "jitter")
        line(*["---"] * 6)
        for row in (IDLE, *[pace_row(*pace) for pace in PACES]):
            for way in PLAIN:
                found = [figure(run, row, way, key) for key in (None, *DELAYS.values())]
                line(row.what, way, *["" if value is None else show(value, digits=1) for value in found])


def goodput_tables(run, path):
    for title, key, digits in (("Gb/s received", "goodput_gbit_s", 2),
                               ("CPU, ns for an octet received, both ends", "cpu_ns_per_octet", 3)):
        line(f"{path}: {title}", *WAYS)
        line(*["---"] * (1 + len(WAYS)))
        for size in SIZES[path]:
            row = goodput_row(path, size)
            base = figure(run, row, "kernel", key)
            line(f"{size} octets", *[show(figure(run, row, way, key), base if way != "kernel" else None, digits)
                                     for way in WAYS])
        print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="?")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--json", help="where the record goes")
    parser.add_argument("--weft", type=Path, help="the command that tells the machine (the one beside LIBRARY)")
    parser.add_argument("--times", type=int, default=5, help="how often each figure is taken (%(default)s)")
    parser.add_argument("--table", nargs="+", metavar="FILE", help="prints the tables of these records")
    pairs.options(parser, "the hooks")
    args = parser.parse_intermixed_args()
    if args.table:
        for file in args.table:
            tables(read(file))
    elif args.library and args.json and all(part in PARTS for part in args.parts):
        try:
            sys.exit(measure(args))
        except pairs.NoBuild as reason:
            sys.exit(str(reason))
    else:
        parser.error("say LIBRARY --json FILE, or --table FILE")


if __name__ == "__main__":
    main()
