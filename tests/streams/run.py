#!/usr/bin/env python3
"""Random traffic over many connections of one program, every octet checked, in bounded runs that a seed repeats.

    tests/streams/run.py --weft FILE [--seconds N] [--seed N] [--modes tcp,ddp,ddp-crc,prefer] [--kinds plain,forks,kills]

Builds the program, and runs it with one seed after the other, a kind (threads alone; forks; kills) and a mode (the
kernel's TCP; DDP at both ends; the same with CRC; DDP where the other end is found to be Weft) at a time, each for its
part of the seconds. A run that fails is told by its seed and played again: flaky is what does not fail then. Nothing
may be left of it: descriptors, processes, memory. The last line is `N passed, N failed, N skipped`.
"""
import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
import seeds  # noqa: E402
from counts import Counts  # noqa: E402
from process import Process  # noqa: E402

MODES = {"tcp": None, "ddp": {"WEFT_DDP": "require"}, "ddp-crc": {"WEFT_DDP": "require", "WEFT_DDP_CRC": "on"},
         "prefer": {"WEFT_DDP": "prefer"}}
KINDS = {"plain": [], "forks": ["--forks"], "kills": ["--kills"]}
SAID = re.compile(r"connections (\d+), ends over DDP (\d+), octets (\d+), steps (\d+), forks (\d+), kills (\d+), "
                  r"cut (\d+), resets (\d+), pages (-?\d+)")
NAMES = ("connections", "over DDP", "octets", "steps", "forks", "kills", "cut", "resets", "pages")
# A run takes a second. The program itself sees when nothing moves (20 s); this is for one that does not end.
RUN_LIMIT = 60
# Where a sender's segments are a little longer than a receiver's window, the kernel's TCP sends a window's octets each
# 200 ms: so the smallest buffers are for DDP alone (decision 0041).
BUFFER_OF_TCP = 65536
# Runs that took 105 and 20 s, as DDP had such segments too; and one in which a call that throws octets away met a reset
# and told nobody.
KNOWN = {("ddp", "plain"): (1795722681, 1795707191, 1795721054)}
# Connections that the program has at a time, of two ends each, and what each may take of the shared memory: its first
# page, and what was not given back of the rest. Some linger when it ends.
ENDS_AT_A_TIME, PAGES_OF_EACH, PAGES_OF_ALL = 2 * 5 + 20, 30, 40


class Stage:
    """The built program, and what it runs under."""

    def __init__(self, weft, work, connections, keep):
        self.work, self.connections, self.keep = Path(work), connections, keep
        self.library = Path(weft).resolve().parent / "libweft_preload.so" if weft else None
        self.program = self.work / "streams"
        self.clean = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        self.runs = 0

    def build(self):
        subprocess.run(["cc", "-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-pthread",
                        "-o", self.program, HERE / "streams.c", HERE / "half.c"], check=True)

    def run(self, mode, kind, seed):
        """What is wrong with a run, if anything, and what it counted."""
        environment = dict(self.clean)
        if MODES[mode] is not None:
            environment |= MODES[mode] | {"LD_PRELOAD": str(self.library)}
        self.runs += 1
        command = [self.program, "--seed", str(seed), "--connections", str(self.connections), *KINDS[kind]]
        if not mode.startswith("ddp"):
            command += ["--least-buffer", str(BUFFER_OF_TCP)]
        process = Process([str(word) for word in command], environment, self.work / f"log{self.runs}", cwd=self.work)
        try:
            ended = process.wait(RUN_LIMIT)
            if not ended and self.keep:
                note_standing(process.child.pid, self.keep / f"{mode}-{kind}-{seed}")
        finally:
            process.stop()
        result = process.result()
        said = f"{result.errors}{result.output}".strip()
        if not ended:
            return f"does not end: {said[-2000:]}", None
        found = SAID.search(result.output)
        if result.status != 0 or not found:
            # What it says of a panic begins with the reason.
            return f"{result.how()}: {said if len(said) < 2500 else said[:1000] + ' ... ' + said[-1500:]}", None
        return judge(mode, kind, dict(zip(NAMES, map(int, found.groups()))))


def note_standing(pid, path):
    """Writes where a program that does not end stands: PATH.sockets and, where gdb is installed, PATH.stacks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    commands = {"sockets": ["ss", "-tnmieo"],
                "stacks": ["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all backtrace 12"]}
    for name, command in commands.items():
        if shutil.which(command[0]):
            with open(f"{path}.{name}", "wb") as file:
                subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=60, check=False)


def judge(mode, kind, counts):
    """What of the counts may not be; and the counts."""
    ends = 2 * counts["connections"]
    if MODES[mode] is None and counts["over DDP"]:
        return "DDP without Weft", counts
    if mode.startswith("ddp") and counts["over DDP"] != ends:
        return f"of {ends} ends {counts['over DDP']} were over DDP", counts
    # How many of these servers are asked before they accept, and are TCP then, is the scheduler's.
    if mode == "prefer" and not counts["over DDP"]:
        return f"of {ends} ends none was over DDP", counts
    if counts["cut"] and (kind != "kills" or MODES[mode] is None):
        return f"{counts['cut']} connections were cut", counts
    if counts["pages"] > PAGES_OF_ALL + ENDS_AT_A_TIME * PAGES_OF_EACH:
        return f"{counts['pages']} pages of shared memory are left", counts
    return None, counts


def play(stage, mode, kind, numbers, seconds):
    """Runs one seed after the other; how it went, and why."""
    numbers = itertools.chain(KNOWN.get((mode, kind), ()), numbers)
    played = seeds.play(lambda seed: stage.run(mode, kind, seed), f"{mode}, {kind}", numbers, seconds,
                        None if kind == "plain" else kind)
    told = ", ".join(f"{played.sums.get(name, 0)} {name}" for name in NAMES if name not in ("steps", "pages"))
    return played.how, played.why or f"{played.runs} runs, {told}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", type=Path, help="the built command; without, the kernel's TCP alone")
    parser.add_argument("--seconds", type=float, default=12, help="for all modes and kinds together (12)")
    parser.add_argument("--seed", type=int, help="the first; else the time's")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--connections", type=int, default=20, help="of each worker in a run (20)")
    parser.add_argument("--keep", type=Path, help="a directory for what a run that does not end leaves: its sockets "
                        "(ss) and stacks (gdb)")
    arguments = parser.parse_args()
    modes, kinds = arguments.modes.split(","), arguments.kinds.split(",")
    unknown = [name for name in modes if name not in MODES] + [name for name in kinds if name not in KINDS]
    if unknown:
        parser.error(f"no such mode or kind: {unknown[0]}")
    if not arguments.weft:
        modes = [mode for mode in modes if MODES[mode] is None]
    seed = arguments.seed if arguments.seed is not None else int(time.time())
    numbers = iter(range(seed, sys.maxsize))
    counts = Counts()
    with tempfile.TemporaryDirectory(prefix="weft-streams-") as work:
        stage = Stage(arguments.weft, work, arguments.connections, arguments.keep)
        stage.build()
        for mode in modes:
            for kind in kinds:
                part = arguments.seconds / len(modes) / len(kinds)
                how, why = play(stage, mode, kind, numbers, part)
                counts.add(how)
                print(f"{how} {mode}, {kind}: {why}", flush=True)
    return counts.close()


if __name__ == "__main__":
    sys.exit(main())
