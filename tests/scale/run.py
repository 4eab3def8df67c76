#!/usr/bin/env python3
"""Many queue pairs at once: how many there can be, what each costs, and how fast they are beside as many TCP sockets.

    tests/scale/run.py --weft TARGET/release/weft [--quick] [--json FILE] [--docs FILE] [--seconds S] [--rounds N]
    tests/scale/run.py --weft TARGET/release/weft --beside PATH [--json FILE] [--seconds S] [--pairs N] [--only WORDS]

With --beside a second build of Weft is measured in turn with the first, and a cell that is slower fails. The last line is `N passed, N failed, N skipped`; the exit status is 0 when nothing failed. See docs/scale.md.
"""

import argparse
import datetime
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path

import report
from ends import Failed, Pair

sys.path.append(str(Path(__file__).resolve().parents[1] / "programs"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import again  # noqa: E402
import pairs  # noqa: E402
from stage import free_ports  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SLEEP, WITH_WRITE = 1, 2
COUNTS = [1, 10, 100, 1000, 10000]
COMMANDS = ("weft", "bin/weft")  # where a build's folder and an installation's prefix have the command
IDLE_BOUND = 48 * 1024  # octets of the process that an idle queue pair may take


class Skipped(Exception):
    """A cell cannot run here."""


class Rig:
    def __init__(self, options, program):
        self.options, self.program, self.weft = options, program, options.weft
        self.ports = free_ports()
        self.table = []  # lines about pairs
        self.results = {"kind": "scale", "started": now(), "environment": environment(), "cells": []}

    def launch(self, stack):
        """What stands before the program, and how the program connects."""
        if stack == "sockets":
            return [], "sockets"
        by, _, settings = stack.partition(" ")
        flags = [f"--{setting}" for setting in settings.split()]
        return [self.weft, "run", *flags, "--"], by

    def pair(self, stack, count, **more):
        launch, by = self.launch(stack)
        needed = 2 * count + 200 if by == "gid" else count + 200
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise Skipped(f"a process may have {hard} descriptors at most (ulimit -Hn), and this needs {needed}")
        return Pair(self.program, launch, by, count, next(self.ports), **more)

    def keep(self, **cell):
        self.results["cells"].append(cell)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def environment():
    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    return {"kernel": platform.release(), "cpu": cpu, "cores": os.cpu_count(), "load": list(os.getloadavg()),
            "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")}


def check(condition, complaint):
    if not condition:
        raise Failed(complaint)


def finish(pair):
    """Ends a pair; the server has found every octet right."""
    counts = pair.end()
    check(counts["wrong"] == 0, f"the server got {counts['wrong']} messages that were wrong")
    return counts


def all_had_traffic(pair, told):
    check(told["least_of_a_connection"] > 0, f"of {pair.count} connections one had no answer: {told}")
    return told


# --- cells of the quick run: bounded, and without a figure that depends on the machine's speed


def traffic_on_all(rig, stack, count):
    """Connected at once, traffic on all, spinning and asleep, every octet right."""
    with rig.pair(stack, count, window=4, size=4096) as pair:
        pair.connect()
        for flags in (WITH_WRITE, WITH_WRITE | SLEEP):
            all_had_traffic(pair, pair.client.ask(f"echo 512 4 0.3 {flags}"))
            pair.client.ask(f"turns 4096 0.2 {flags & SLEEP}")
        finish(pair)


def idle_memory(rig, count):
    """An idle queue pair takes less than a bound, and no buffers."""
    with rig.pair("cm", count) as pair:
        pair.connect()
        each = pair.memory()["process"]
        finish(pair)
    check(each < IDLE_BOUND, f"{each:.0f} octets for each idle queue pair; the bound is {IDLE_BOUND}")


def few_descriptors(rig, count):
    """A soft limit on descriptors below the number of queue pairs is raised."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with rig.pair("cm", count, files=(count // 2, hard)) as pair:
        pair.connect()
        all_had_traffic(pair, pair.client.ask("echo 64 1 0.1"))
        finish(pair)


def too_few_descriptors(rig, count):
    """Where the hard limit is below, the program gets an errno and the user a line that says what to do."""
    try:
        with rig.pair("cm", count, files=(count // 2, count // 2)) as pair:
            pair.connect()
            raise Failed(f"{count} connections with {count // 2} descriptors")
    except Failed as failure:
        said = str(failure)
        check("ulimit -n" in said and "errno" in said, f"nothing was said of the limit: {said}")


def quick(rig):
    yield "200 queue pairs by cm", lambda: traffic_on_all(rig, "cm", 200)
    yield "200 queue pairs by cm, CRC off", lambda: traffic_on_all(rig, "cm crc=off", 200)
    yield "100 queue pairs by gid", lambda: traffic_on_all(rig, "gid", 100)
    yield "200 sockets", lambda: traffic_on_all(rig, "sockets", 200)
    yield "memory of 400 idle queue pairs", lambda: idle_memory(rig, 400)
    yield "200 queue pairs above the soft limit", lambda: few_descriptors(rig, 200)
    yield "200 queue pairs above the hard limit", lambda: too_few_descriptors(rig, 200)


# --- cells of the whole run


def curve(rig, stack, count, **more):
    """Storm, memory, throughput and latency of one number of connections between two processes."""
    seconds = rig.options.seconds
    cell = {"what": "curve", "stack": stack, "count": count, **more}
    with rig.pair(stack, count, window=4) as pair:
        cell["storm"] = pair.connect()
        if stack.startswith("gid"):
            # RTS comes before the streams do: up is who has had an answer.
            start = time.monotonic()
            pair.client.ask("echo 64 1 0")
            cell["storm"]["all_us"] += (time.monotonic() - start) * 1e6
        cell["idle"] = pair.memory()
        for name, command in (("spin 64 x1", f"echo 64 1 {seconds} 0"), ("spin 64 x4", f"echo 64 4 {seconds} 0"),
                              ("spin 16384 x1", f"echo 16384 1 {seconds} 0"), ("sleep 64 x1", f"echo 64 1 {seconds} 1"),
                              ("turns spin", f"turns 64 {seconds} 0"), ("turns sleep", f"turns 64 {seconds} 1")):
            cell[name] = pair.client.ask(command)
            if not name.startswith("turns"):
                all_had_traffic(pair, cell[name])
        cell["busy"] = pair.memory() | {"resident": pair.client.ask("turns 64 0 0")["resident"]}
        cell["answered"] = finish(pair)["answered"]
    rig.keep(**cell)
    return cell


def written_and_sent(rig, stack, count, seconds=2):
    """Traffic on all with an RDMA Write ahead of each message, looked at on arrival."""
    with rig.pair(stack, count, window=2, size=4096) as pair:
        pair.connect()
        told = all_had_traffic(pair, pair.client.ask(f"echo 4096 2 {seconds} {WITH_WRITE}"))
        rig.keep(what="verified", stack=stack, count=count, answers=told["answers"], rate=told["rate"])
        finish(pair)


def many_processes(rig, stack, processes, count):
    """`processes` pairs of `count` connections, traffic on all of them at once."""
    pairs = []
    try:
        for _ in range(processes):
            pairs.append(rig.pair(stack, count, size=4096, pinned=False))
        start = time.monotonic()
        for pair in pairs:
            pair.client.tell("connect")
        for pair in pairs:
            pair.connected, pair.accepted = pair.client.hear(), pair.server.hear()
        storm = time.monotonic() - start
        flags = SLEEP | (0 if stack == "sockets" else WITH_WRITE)
        seconds = 2 * rig.options.seconds
        for pair in pairs:
            pair.client.tell(f"echo 1024 1 {seconds} {flags}")
        told = [all_had_traffic(pair, pair.client.hear()) for pair in pairs]
        for pair in pairs:
            finish(pair)
        rig.keep(what="processes", stack=stack, processes=processes, count=count, storm_s=storm,
                 answers=sum(one["answers"] for one in told), rate=sum(one["rate"] for one in told),
                 median_us=statistics.median(one["median_us"] for one in told))
    finally:
        for pair in pairs:
            pair.kill()


def whole(rig):
    for turn in range(rig.options.rounds):
        for count in COUNTS:
            for stack in ("sockets", "cm crc=off", "cm crc=on"):
                yield f"round {turn + 1}: {count} by {stack}", lambda c=count, s=stack: curve(rig, s, c)
    for count in (100, 1000):
        yield f"{count} by gid crc=on", lambda c=count: curve(rig, "gid crc=on", c)
    yield "1000 with writes by cm", lambda: written_and_sent(rig, "cm crc=on", 1000)
    yield "1000 with writes by gid", lambda: written_and_sent(rig, "gid crc=on", 1000)
    for stack in ("sockets", "cm crc=off", "cm crc=on"):
        yield f"10 x 1000 by {stack}", lambda s=stack: many_processes(rig, s, 10, 1000)


# --- two builds in turn: the same curves, before and after


def figures(cell):
    """What is compared of a curve."""
    rates = {name: cell[name]["rate"] for name in ("spin 64 x1", "spin 64 x4", "spin 16384 x1", "sleep 64 x1")}
    return {"storm": cell["storm"]["all_us"], **rates, "turns spin": cell["turns spin"]["median_us"],
            "turns sleep": cell["turns sleep"]["median_us"]}


def in_turn(rig, builds, stack, count):
    """The curve of one number of connections with each build, pair after pair; fails when a figure is slower."""
    def measure(build, number):
        rig.weft = builds[build]
        try:
            return figures(curve(rig, stack, count, build=build, pair=number))
        except Failed as failure:
            rig.keep(what="curve", stack=stack, count=count, build=build, pair=number, failure=str(failure))
            print(f"pair {number}, {build}: {failure}", flush=True)
            return None
    taken = pairs.Pairs(lower=("storm", "turns spin", "turns sleep")).take(measure, rig.options.pairs)
    rig.table.extend(taken.lines(f"{count} by {stack}"))
    check(not taken.slower(), f"{', '.join(taken.slower())}: slower than the build beside it, or no figure of both")


def beside(rig, builds):
    for count in COUNTS:
        for stack in ("cm crc=off", "cm crc=on"):
            yield f"pairs: {count} by {stack}", lambda c=count, s=stack: in_turn(rig, builds, s, c)
    for count in (100, 1000):
        yield f"pairs: {count} by gid crc=on", lambda c=count: in_turn(rig, builds, "gid crc=on", c)


def find_builds(options):
    """The commands of both builds, and what the record says of them."""
    given = {pairs.THIS: options.weft, pairs.BESIDE: options.beside}
    files = {name: pairs.find(path, COMMANDS, lambda weft: [weft, "run", "--", "true"]) for name, path in given.items()}
    return files, {name: pairs.describe(file, given[name]) for name, file in files.items()}


# --- the run


def options_given():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", type=Path, default=ROOT / "target/release/weft", help="the command under test")
    parser.add_argument("--quick", action="store_true", help="the cells that `make test` runs")
    parser.add_argument("--only", default="", help="only cells whose name contains this")
    parser.add_argument("--seconds", type=float, default=1, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=2, help="how often the curves are measured")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--docs", type=Path, help="write the tables there")
    pairs.options(parser, "the command")
    options = parser.parse_args()
    if options.beside and (options.quick or options.docs):
        parser.error("--beside measures curves in turn: without --quick, and without --docs")
    return options


def play(name, cell):
    """What became of a cell, and why."""
    start = time.monotonic()
    try:
        cell()
        print(f"ok {name} ({time.monotonic() - start:.1f} s)", flush=True)
        return "passed", None
    except Skipped as reason:
        print(f"skipped {name}: {reason}", flush=True)
        return "skipped", reason
    except (Failed, OSError, ValueError, KeyError) as failure:
        print(f"FAILED {name}: {failure}", flush=True)
        if not isinstance(failure, Failed):
            traceback.print_exc(file=sys.stdout)
        return "failed", failure


def main():
    options = options_given()
    try:
        builds, told = find_builds(options) if options.beside else (None, None)
    except pairs.NoBuild as reason:
        print(f"scale: {reason}")
        return 2
    options.weft = options.weft.resolve()
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as work:
        program = Path(work) / "crowd"
        if os.spawnl(os.P_WAIT, str(HERE / "build.sh"), "build.sh", str(program)):
            print("scale: the program does not compile (packages gcc, libibverbs-dev, librdmacm-dev)")
            return 1
        rig = Rig(options, program)
        if builds:
            rig.results["builds"] = told
        for name, cell in beside(rig, builds) if builds else (quick if options.quick else whole)(rig):
            if options.only not in name:
                continue
            outcome, why = play(name, cell)
            # Pairs have been taken often enough already.
            if outcome == "failed" and not builds:
                outcome, _ = play(name, cell)
                if outcome == "passed":
                    again.say(name, why)
            passed += outcome == "passed"
            failed += outcome == "failed"
            skipped += outcome == "skipped"
        rig.results["finished"] = now()
    if options.json:
        options.json.write_text(json.dumps(rig.results, indent=1) + "\n", encoding="utf-8")
    if options.docs:
        report.into(options.docs, rig.results)
    if builds:
        print(f"\n{pairs.HEAD}", *rig.table, "", sep="\n")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
