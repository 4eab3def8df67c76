#!/usr/bin/env python3
"""Instructions that a datagram, a round trip, a megabyte and a request take under the hooks of two builds: what a busy
machine does not disturb.

    tests/datagrams/instructions.py LIBRARY --beside PATH [--runs N] [--only REGEX] [--json FILE]

The rows are those of bench.py beside it. Both programs of a row run under callgrind (package valgrind), the builds in
turn, and a figure is the median of the runs, of both ends together; a program's start is counted apart and taken off.
Programs that keep a pace spend what is left on the clock, so of their rows only the hooks' own instructions count.
How many datagrams leave or arrive in one call is the clock's, so figures of one build differ by some percent from run
to run. `veth` rows need privilege. The exit status is 1 where a row takes more than 1.02 times the instructions, 2
where one failed.
"""

import argparse
import re
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

import bench
from bench import OURS, WAYS

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import instruction_counts  # noqa: E402
import pairs  # noqa: E402
from network import Namespaces, may_have_namespaces  # noqa: E402
from process import Failed  # noqa: E402

GATHERED = [way for way in WAYS if way in OURS]
# Seconds and numbers: callgrind is fifty times slower than the machine.
SECONDS, ROUND_TRIPS, MEGABYTES, REQUESTS = 3, 2_000, 400, 4_000


class Counted(bench.Bench):
    """Starts programs under callgrind, and knows what they have taken."""

    def __init__(self, library, folder):
        super().__init__(library, folder, None, 1)
        self.written = []

    def start(self, rule, *words, core=bench.SERVER, enter=()):
        self.written.append(self.folder / f"counted.{self.started}")
        under = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={self.written[-1]}"]
        return super().start(rule, *under, *words, core=core, enter=enter)

    def taken(self, count):
        """Instructions of the programs that have ended since the last time, as `count` finds them in a file."""
        written, self.written = self.written, []
        return sum(count(file.read_text()) for file in written)


def in_all(text):
    """Instructions that a file of callgrind's has counted."""
    return int(re.search(r"^totals: (\d+)$", text, re.MULTILINE)[1])


def in_the_hooks(text):
    """The same, of the hooks alone."""
    names, in_hooks, of_a_callee, sum_of_lines = {}, False, False, 0
    for line in text.splitlines():
        # An object is named where it comes first, and has its number from then on, also where one is called.
        if file := re.match(r"c?ob=(\(\d+\))(?: (.+))?$", line):
            names[file[1]] = file[2] or names[file[1]]
            if line.startswith("ob="):
                in_hooks = names[file[1]].endswith("libweft_preload.so")
        elif line.startswith("calls="):
            of_a_callee = True
        elif cost := re.match(r"[+*-]?\d* (\d+)$", line):
            if in_hooks and not of_a_callee:
                sum_of_lines += int(cost[1])
            of_a_callee = False
    return sum_of_lines


def per_unit(counted, run, count=in_all):
    """Instructions of a unit. `run(share)` passes so large a share of what there is and gives the number of units: a
    short run's are taken off a long one's, and the start with them."""
    few, taken_by_few = run(0.1), counted.taken(count)
    many, taken_by_many = run(1), counted.taken(count)
    return (taken_by_many - taken_by_few) / (many - few)


def goodput(counted, way, size, address, enters):
    server, client, _ = WAYS[way]

    def run(share):
        got, sent = counted.pair((server, client), lambda port: (counted.rate, "receive", port, "1"),
                                 lambda port: (counted.rate, "send", address, port, size, share * SECONDS), enters)
        return (bench.numbers(got)["datagrams"] + bench.numbers(sent)["datagrams"]) / 2
    return per_unit(counted, run)


def idle(counted, way):
    def run(share):
        counted.pair(WAYS[way][:2], lambda port: (counted.rate, "answer", port),
                     lambda port: (counted.rate, "ask", "127.0.0.1", port, int(share * ROUND_TRIPS)))
        return share * ROUND_TRIPS
    return per_unit(counted, run)


def paced(counted, way, size, rate):
    def run(share):
        got, sent = counted.pair(WAYS[way][:2], lambda port: (counted.rate, "delay", port, 1),
                                 lambda port: (counted.rate, "pace", "127.0.0.1", port, size, rate, share * SECONDS))
        return (bench.numbers(got)["datagrams"] + bench.numbers(sent)["datagrams"]) / 2
    return per_unit(counted, run, in_the_hooks)


def stream(counted, way):
    rule = bench.STREAMS[way]

    def run(share):
        counted.pair((rule, rule), lambda port: ("iperf3", "-s", "-1", "-p", port),
                     lambda port: ("iperf3", "-c", "127.0.0.1", "-p", port, "-n", f"{int(share * MEGABYTES)}M"),
                     datagrams=False)
        return share * MEGABYTES
    return per_unit(counted, run)


def requests(counted, way):
    rule = bench.STREAMS[way]

    def run(share):
        port = counted.port()
        server = counted.start(rule, "redis-server", "--port", port, "--save", "")
        try:
            server.await_port(port)
            number = int(share * REQUESTS)
            counted.run(rule, "redis-benchmark", "-p", port, "-n", number, "-c", 20, "-t", "get", "--csv")
        finally:
            server.end(20)
        return share * REQUESTS
    return per_unit(counted, run)


def rows(networks):
    """The id of each row, its way, and what counts it."""
    for path, sizes in bench.SIZES.items():
        if path not in networks:
            print(f"{path} SKIPPED: network namespaces need root and `ip`", file=sys.stderr)
            continue
        for size in sizes:
            for way in GATHERED:
                yield (f"{path}/datagrams-{size}", way,
                       lambda counted, way=way, size=size, at=networks[path]: goodput(counted, way, size, *at))
    for way in GATHERED:
        yield bench.IDLE.id, way, lambda counted, way=way: idle(counted, way)
        for size, rate in bench.PACES:
            yield (bench.pace_row(size, rate).id, way,
                   lambda counted, way=way, size=size, rate=rate: paced(counted, way, size, rate))
    for way in (way for way in bench.STREAMS if way in OURS):
        yield bench.IPERF.id, way, lambda counted, way=way: stream(counted, way)
        yield bench.REDIS.id, way, lambda counted, way=way: requests(counted, way)


def count(options, files):
    """What each build takes, run by run, by row and way; and the exit status: 2 where a row failed."""
    taken, failed = {}, 0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        networks = {"loopback": ("127.0.0.1", ((), ()))}
        if may_have_namespaces():
            namespaces = stack.enter_context(closing(Namespaces()))
            ends = [namespaces.add(side) for side in "ab"]
            namespaces.join(*ends)
            for number, end in enumerate(ends, start=1):
                end.up("eth0", f"10.213.0.{number}/24")
            networks["veth"] = ("10.213.0.1", [end.enter for end in ends])
        counted = Counted(files[pairs.THIS], folder)
        for name, way, row in rows(networks):
            if not re.search(options.only, f"{name}, {way}"):
                continue
            try:
                taken[name, way] = count_row(counted, row, files, options.runs)
            except Failed as failure:
                print(f"FAILED {name}, {way}: {failure}", file=sys.stderr)
                counted.written, failed = [], 2
    return taken, failed


def count_row(counted, row, files, number_of_runs):
    """What the builds take for one row, in turn."""
    runs = {}
    for number in range(1, number_of_runs + 1):
        for build in pairs.order(number):
            counted.library = str(files[build])
            runs.setdefault(build, []).append(row(counted))
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path, help="the hooks under test, libweft_preload.so")
    parser.add_argument("--beside", type=Path, required=True, help="the same of the second build, or its folder")
    parser.add_argument("--runs", type=int, default=5, help="of each build (%(default)s)")
    parser.add_argument("--only", default="", metavar="REGEX", help='of "ROW, WAY"')
    parser.add_argument("--json", type=Path, help="write what was counted there")
    options = parser.parse_args()
    if instruction_counts.valgrind_is_missing():
        return 2
    given = {pairs.THIS: options.library, pairs.BESIDE: options.beside}
    try:
        files = {name: pairs.find(path, pairs.LIBRARIES, lambda library: ["env", f"LD_PRELOAD={library}", "true"])
                 for name, path in given.items()}
    except pairs.NoBuild as reason:
        print(f"instructions: {reason}")
        return 2
    taken, failed = count(options, files)
    if options.json:
        rows_and_ways = [{"row": row, "way": way, **runs} for (row, way), runs in taken.items()]
        instruction_counts.keep(options.json, files, given, instructions=rows_and_ways)
    status = instruction_counts.report(taken) if taken or not failed else failed
    return max(status, failed)


if __name__ == "__main__":
    sys.exit(main())
