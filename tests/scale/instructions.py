#!/usr/bin/env python3
"""What a message and a connect take in instructions with many connections, of two builds: what a busy machine does not
disturb.

    tests/scale/instructions.py --weft TARGET/release/weft --beside PATH [--counts 10,100,1000] [--stack STACK]
                                [--runs N] [--seconds S] [--json FILE]

Both programs of a pair run under callgrind (package valgrind), the builds in turn; a figure is the median of the runs,
of both ends together. Programs that poll look in vain more or less often, so that figures of one build differ by some
percent from run to run. The exit status is 1 where a row takes more than 1.02 times the instructions.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import rows
from ends import Pair

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import instruction_counts  # noqa: E402
import pairs  # noqa: E402
from network import free_ports  # noqa: E402
from process import Failed  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SLEEP = 1
# A thread that looks by the clock would look the more often the slower callgrind is.
TICK = {"WEFT_SERVE_TICK_US": "1000000", "WEFT_SAME_HOST": "off"}


class Counted:
    """Both ends of a pair under callgrind."""

    def __init__(self, pair, folder):
        self.pair, self.folder, self.dumps = pair, Path(folder), 0

    def during(self, take):
        """What `take` gives, and the instructions of both ends meanwhile."""
        for end in self.pair.ends:
            control("--zero", end.pid)
        told = take()
        self.dumps += 1
        return told, sum(self.dumped(end.pid) for end in self.pair.ends)

    def dumped(self, pid):
        control("--dump", pid)
        written = self.folder / f"{pid}.{self.dumps}"
        line = next(line for line in written.read_text().splitlines() if line.startswith("totals: "))
        return int(line.split()[1])


def control(what, pid):
    done = subprocess.run(["callgrind_control", what, str(pid)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=120, check=False)
    if done.returncode or "OK" not in done.stdout:
        raise Failed(f"callgrind_control {what} {pid}: {done.stdout.strip()}")


def one_run(weft, program, port, stack, count, seconds):
    """Instructions of each row, by its id."""
    _, *words = stack.split()
    flags = [f"--{word}" for word in words if "=" in word]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        launch = [weft, "run", *flags, "--", "valgrind", "-q", "--tool=callgrind",
                  f"--callgrind-out-file={folder}/%p"]
        with Pair(program, launch, "gid" if "gid" in words else "cm", count, port, window=4) as pair:
            counted = Counted(pair, folder)
            _, taken = counted.during(pair.connect)
            if "gid" not in words:  # there it is over before the streams are there
                found[rows.storm(count).id] = taken / count
            for octets, window, asleep in rows.ECHOES:
                command = f"echo {octets} {window} {seconds} {SLEEP * asleep}"
                told, taken = counted.during(lambda: pair.client.ask(command))
                found[rows.echo(octets, window, asleep, count).id] = taken / told["answers"]
            for asleep in (False, True):
                told, taken = counted.during(lambda: pair.client.ask(f"turns 64 {seconds} {SLEEP * asleep}"))
                found[rows.turns(asleep, count).id] = taken / told["answers"]
            pair.end()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", type=Path, default=ROOT / "target/release/weft", help="the command under test")
    parser.add_argument("--beside", type=Path, required=True, help="the same of the second build, or its folder")
    parser.add_argument("--counts", default="10,100,1000", help="numbers of connections (%(default)s)")
    parser.add_argument("--stack", default=rows.CM[0], help='"%(default)s" or another one of the scale suite')
    parser.add_argument("--runs", type=int, default=5, help="of each build (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1, help="of each row in a run (%(default)s)")
    parser.add_argument("--json", type=Path, help="write what was counted there")
    options = parser.parse_args()
    if instruction_counts.valgrind_is_missing():
        return 2
    given = {pairs.THIS: options.weft, pairs.BESIDE: options.beside}
    try:
        files = {name: pairs.find(path, pairs.COMMANDS, lambda weft: [weft, "run", "--", "true"])
                 for name, path in given.items()}
    except pairs.NoBuild as reason:
        print(f"instructions: {reason}")
        return 2
    os.environ.update(TICK)
    ports = free_ports()
    counted = {}
    with tempfile.TemporaryDirectory() as work:
        program = Path(work) / "crowd"
        subprocess.run([HERE / "build.sh", program], check=True)
        for count in map(int, options.counts.split(",")):
            for number in range(1, options.runs + 1):
                for build in pairs.order(number):
                    run = one_run(files[build], program, next(ports), options.stack, count, options.seconds)
                    for row, taken in run.items():
                        counted.setdefault(row, {}).setdefault(build, []).append(taken)
    if options.json:
        instruction_counts.keep(options.json, files, given, stack=options.stack, instructions=counted)
    return instruction_counts.report({(row, options.stack): runs for row, runs in counted.items()})


if __name__ == "__main__":
    sys.exit(main())
