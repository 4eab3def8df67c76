#!/usr/bin/env python3
"""Many queue pairs at once: how many there can be, what each costs, and how fast they are beside as many TCP sockets.

    tests/scale/run.py --weft TARGET/release/weft [--quick] [--json FILE] [--docs FILE] [--seconds S] [--rounds N]
    tests/scale/run.py --weft TARGET/release/weft --beside PATH [--json FILE] [--seconds S] [--pairs N] [--until 2%]

With --beside the curves of a second build are measured in turn with those of the first, and the exit status is 1 where a
row is slower. The last line is `N passed, N failed, N skipped`; the exit status is 0 when nothing failed. See docs/scale.md.
"""

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path

import report
import rows
from ends import Pair, pinned_cores

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import again  # noqa: E402
import pairs  # noqa: E402
from counts import Counts  # noqa: E402
from network import free_ports  # noqa: E402
from process import Failed  # noqa: E402
from record import Record  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SLEEP, WITH_WRITE = 1, 2
IDLE_BOUND = 48 * 1024  # octets of the process that an idle queue pair may take


class Skipped(Exception):
    """A cell cannot run here."""


class Rig:
    def __init__(self, options, program):
        self.options, self.program, self.weft = options, program, options.weft
        self.ports = free_ports()
        self.record = None  # the quick run measures nothing
        if not options.quick:
            seconds = int(options.seconds) if options.seconds == int(options.seconds) else None
            self.record = Record(options.weft, options.rounds, seconds, pinned_cores(), filter(None, [options.only]))
            self.record.path(rows.PATH, "127.0.0.1", int(Path("/sys/class/net/lo/mtu").read_text()), enter=())

    def launch(self, stack):
        """What stands before the program, and how the program connects."""
        if stack == rows.RAW_TCP:
            return [], "sockets"
        _, *words = stack.split()
        flags = [f"--{word}" for word in words if "=" in word]
        return [self.weft, "run", *flags, "--"], "gid" if "gid" in words else "cm"

    def pair(self, stack, count, row=None, **more):
        """The two programs, ready to connect. Where they cannot run the record says so at `row`."""
        launch, by = self.launch(stack)
        needed = 2 * count + 200 if by == "gid" else count + 200
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY and hard < needed:
            reason = f"a process may have {hard} descriptors at most (ulimit -Hn), and this needs {needed}"
            if row:
                self.record.skip(row, stack, reason)
            raise Skipped(reason)
        return Pair(self.program, launch, by, count, next(self.ports), **more)

    def measure(self, row, stack, pair, take):
        """Keeps the metrics that `take` gives, or that it failed."""
        began = time.monotonic()
        commands = [end.command for end in reversed(pair.ends)]
        try:
            metrics = take()
        except Failed as failure:
            self.record.sample(row, stack, began, failure=failure, commands=commands)
            raise
        self.record.sample(row, stack, began, metrics, commands=commands)
        return metrics


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
    with rig.pair("weft", count) as pair:
        pair.connect()
        each = pair.memory()["process"]
        finish(pair)
    check(each < IDLE_BOUND, f"{each:.0f} octets for each idle queue pair; the bound is {IDLE_BOUND}")


def few_descriptors(rig, count):
    """A soft limit on descriptors below the number of queue pairs is raised."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with rig.pair("weft", count, files=(count // 2, hard)) as pair:
        pair.connect()
        all_had_traffic(pair, pair.client.ask("echo 64 1 0.1"))
        finish(pair)


def too_few_descriptors(rig, count):
    """Where the hard limit is below, the program gets an errno and the user a line that says what to do."""
    try:
        with rig.pair("weft", count, files=(count // 2, count // 2)) as pair:
            pair.connect()
            raise Failed(f"{count} connections with {count // 2} descriptors")
    except Failed as failure:
        said = str(failure)
        check("ulimit -n" in said and "errno" in said, f"nothing was said of the limit: {said}")


def quick(rig):
    yield "200 queue pairs by cm", lambda: traffic_on_all(rig, "weft", 200)
    yield "200 queue pairs by cm, CRC off", lambda: traffic_on_all(rig, "weft crc=off", 200)
    yield "100 queue pairs by gid", lambda: traffic_on_all(rig, "weft gid", 100)
    yield "200 sockets", lambda: traffic_on_all(rig, rows.RAW_TCP, 200)
    yield "memory of 400 idle queue pairs", lambda: idle_memory(rig, 400)
    yield "200 queue pairs above the soft limit", lambda: few_descriptors(rig, 200)
    yield "200 queue pairs above the hard limit", lambda: too_few_descriptors(rig, 200)


# --- cells of the whole run


def curve(rig, stack, count):
    """Storm, memory, throughput and latency of one number of connections between two processes."""
    seconds = rig.options.seconds
    with rig.pair(stack, count, rows.storm(count), window=4) as pair:
        rig.measure(rows.storm(count), stack, pair, lambda: connected(pair, stack))
        idle = pair.memory()
        for octets, window, asleep in rows.ECHOES:
            rig.measure(rows.echo(octets, window, asleep, count), stack, pair,
                        lambda: echoed(pair, f"echo {octets} {window} {seconds} {SLEEP * asleep}"))
        for asleep in (False, True):
            rig.measure(rows.turns(asleep, count), stack, pair,
                        lambda: latency(pair, f"turns 64 {seconds} {SLEEP * asleep}"))
        rig.measure(rows.memory(count), stack, pair, lambda: {
            "process_octets": idle["process"], rows.KERNEL: idle["kernel"], rows.KERNEL_BUSY: pair.memory()["kernel"],
            rows.RESIDENT_BUSY: pair.client.ask("turns 64 0 0")["resident"]})
        finish(pair)


def connected(pair, stack):
    """How long it takes until all connections are up."""
    told = pair.connect()
    took = told["all_us"]
    if stack == rows.GID:
        # RTS comes before the streams do: up is who has had an answer.
        start = time.monotonic()
        pair.client.ask("echo 64 1 0")
        took += (time.monotonic() - start) * 1e6
    return {"connect_all_us": took, "connect_us": told["median_us"], "connect_p99_us": told["p99_us"]}


def echoed(pair, command):
    told = all_had_traffic(pair, pair.client.ask(command))
    return {"requests_per_s": told["rate"], "answers": told["answers"], "rtt_us": told["median_us"],
            "rtt_p99_us": told["p99_us"]}


def latency(pair, command):
    told = pair.client.ask(command)
    return {"rtt_us": told["median_us"], "p99_us": told["p99_us"]}


def written_and_sent(rig, stack, count, seconds=2):
    """Traffic on all with an RDMA Write ahead of each message, looked at on arrival."""
    with rig.pair(stack, count, rows.written(count), window=2, size=4096) as pair:
        pair.connect()
        rig.measure(rows.written(count), stack, pair, lambda: echoed(pair, f"echo 4096 2 {seconds} {WITH_WRITE}"))
        finish(pair)


def many_processes(rig, stack, processes, count):
    """`processes` pairs of `count` connections, traffic on all of them at once."""
    pairs = []
    try:
        for _ in range(processes):
            pairs.append(rig.pair(stack, count, rows.processes(processes, count), size=4096, pinned=False))
        start = time.monotonic()
        for pair in pairs:
            pair.client.tell("connect")
        for pair in pairs:
            pair.connected, pair.accepted = pair.client.hear(), pair.server.hear()
        storm = time.monotonic() - start
        flags = SLEEP | (0 if stack == rows.RAW_TCP else WITH_WRITE)
        seconds = 2 * rig.options.seconds

        def all_at_once():
            for pair in pairs:
                pair.client.tell(f"echo 1024 1 {seconds} {flags}")
            told = [all_had_traffic(pair, pair.client.hear()) for pair in pairs]
            return {"requests_per_s": sum(one["rate"] for one in told), "answers": sum(one["answers"] for one in told),
                    "rtt_us": statistics.median(one["median_us"] for one in told), "connect_all_us": storm * 1e6}

        rig.measure(rows.processes(processes, count), stack, pairs[0], all_at_once)
        for pair in pairs:
            finish(pair)
    finally:
        for pair in pairs:
            pair.kill()


def whole(rig):
    for turn in range(rig.options.rounds):
        for count in rows.COUNTS:
            for stack in (rows.RAW_TCP, *rows.CM):
                yield f"round {turn + 1}: {count} by {stack}", lambda c=count, s=stack: curve(rig, s, c)
    for count in (100, 1000):
        yield f"{count} by {rows.GID}", lambda c=count: curve(rig, rows.GID, c)
    for stack in ("weft crc=on", rows.GID):
        yield f"{rows.WRITTEN} with writes by {stack}", lambda s=stack: written_and_sent(rig, s, rows.WRITTEN)
    for stack in (rows.RAW_TCP, *rows.CM):
        yield f"10 x 1000 by {stack}", lambda s=stack: many_processes(rig, s, *rows.PROCESSES)


# --- two builds in turn: the same curves, before and after


def curve_rows(count):
    """What a curve measures."""
    echoes = [rows.echo(octets, window, asleep, count) for octets, window, asleep in rows.ECHOES]
    return [rows.storm(count), *echoes, *[rows.turns(asleep, count) for asleep in (False, True)], rows.memory(count)]


def in_turn(rig, builds, stack, count):
    """The curve of one number of connections with each build, pair after pair; fails where a row is slower."""
    def measure(weft):
        rig.weft = weft
        try:
            curve(rig, stack, count)
        except Failed as failure:
            # Where a sample failed the record has it; a pair that is not whole counts for what it has.
            print(f"{count} by {stack}, {weft}: {failure}", flush=True)
    cells = [(row.id, stack) for row in curve_rows(count)]
    builds.take(cells, measure)
    mine = [f"{row_id} {stack}: " for row_id, stack in cells]
    worse = [line for line in pairs.slower(rig.record.run) if line.startswith(tuple(mine))]
    check(not worse, "; ".join(worse))
    check(any(pairs.ratios(rig.record.run, *cell) for cell in cells), "no pair has a figure of both builds")


def beside(rig, builds):
    for count in rows.COUNTS:
        for stack in rows.CM:
            yield f"pairs: {count} by {stack}", lambda c=count, s=stack: in_turn(rig, builds, s, c)
    for count in (100, 1000):
        yield f"pairs: {count} by {rows.GID}", lambda c=count: in_turn(rig, builds, rows.GID, c)


def find_builds(options):
    """The commands of both builds, and how they were named; none without a second build."""
    if not options.beside:
        return None
    given = {pairs.THIS: options.weft, pairs.BESIDE: options.beside}
    files = {name: pairs.find(path, pairs.COMMANDS, lambda weft: [weft, "run", "--", "true"])
             for name, path in given.items()}
    return files, given


# --- the run


def options_given():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", type=Path, default=ROOT / "target/release/weft", help="the command under test")
    parser.add_argument("--quick", action="store_true", help="the cells that `make test` runs")
    parser.add_argument("--only", default="", help="only cells whose name contains this")
    parser.add_argument("--seconds", type=float, default=1, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=2, help="how often the curves are measured")
    parser.add_argument("--json", type=Path, help="write the record there, which `weft bench report` prints")
    parser.add_argument("--docs", type=Path, help="write the tables between the marks of that file")
    pairs.options(parser, "the command")
    options = parser.parse_args()
    if options.beside and (options.quick or options.docs):
        parser.error("--beside measures curves in turn: without --quick and --docs")
    if options.quick and (options.json or options.docs):
        parser.error("--quick measures nothing that --json or --docs could write")
    if options.docs and options.only:
        parser.error("--docs does not go with --only: the tables are of a whole run")
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
        found = find_builds(options)
    except pairs.NoBuild as reason:
        print(f"scale: {reason}")
        return 2
    options.weft = options.weft.resolve()
    counts = Counts()
    with tempfile.TemporaryDirectory() as work:
        program = Path(work) / "crowd"
        if os.spawnl(os.P_WAIT, str(HERE / "build.sh"), "build.sh", str(program)):
            print("scale: the program does not compile (packages gcc, libibverbs-dev, librdmacm-dev)")
            return 1
        rig = Rig(options, program)
        try:
            if found:
                builds = pairs.TwoBuilds(rig.record, *found, options.until, options.pairs)
                # Pairs have been taken often enough; none is played again.
                play_all(beside(rig, builds), options.only, counts, more=0)
            else:
                play_all((quick if options.quick else whole)(rig), options.only, counts)
            if rig.record:
                rig.record.finish()
        finally:
            # What was measured is kept, whatever ended the run.
            if options.json:
                rig.record.write(options.json)
    if options.docs:
        report.into(options.docs, rig.record.run)
    if found:
        print(*pairs.table(rig.record.run), "", sep="\n")
    return counts.close()


def play_all(cells, only, counts, more=1):
    """Plays the cells that are asked for, and once `more` those that failed."""
    for name, cell in cells:
        if only not in name:
            continue
        outcome, why = play(name, cell)
        if outcome == "failed" and more:
            with again.alone():
                outcome, _ = play(name, cell)
            if outcome == "passed":
                again.say(name, why)
        counts.add(outcome)


if __name__ == "__main__":
    sys.exit(main())
