#!/usr/bin/env python3
"""Random datagrams between many processes, each one checked, in bounded runs that a seed begins alike.

    tests/uoe/crowd.py --weft FILE [--seconds N] [--seed N] [--modes plain,prefer,require,waits]
                       [--kinds quiet,forks,kills]

Builds crowd.c, and runs it with one seed after the other, a kind (as it is; senders that fork; processes that are
killed) and a mode (the kernel's UDP; the two rules of carriers, the second one waiting or not) at a time, each for its
part of the seconds. What arrives is whole, from where it says, and comes once; where nobody is killed no more is
missing than the kernel and Weft say they dropped. A run that fails is played again: flaky is what does not fail then.
The last line is `N passed, N failed, N skipped`.
"""
import argparse
import itertools
import os
import re
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

MODES = {"plain": None, "prefer": "uoe prefer; gso", "require": "uoe require", "waits": "uoe require mode=2"}
KINDS = {"quiet": [], "forks": ["forks"], "kills": ["kills"]}
DISCOVERY_PORT = 24342
SAID = re.compile(r"sent (\d+), came (\d+), dropped by the kernel (\d+), disordered (\d+), forks (\d+), kills (\d+)")
NAMES = ("sent", "came", "dropped by the kernel", "disordered", "forks", "kills")
OF_WEFT = re.compile(r"(\d+) datagrams left over (\d+) connections of Weft's, (\d+) came, (\d+) were dropped")
RUN_MILLISECONDS = 1000
# A run takes two seconds, on a busy machine more; this is for one that does not end.
RUN_LIMIT = 60


class Stage:
    """The built program, and what it runs under."""

    def __init__(self, weft, work):
        self.work, self.program = Path(work), Path(work) / "crowd"
        self.library = Path(weft).resolve().parent / "libweft_preload.so"
        self.clean = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        self.runs = 0

    def build(self):
        subprocess.run(["cc", "-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-pthread",
                        "-o", self.program, HERE / "crowd.c"], check=True)

    def run(self, mode, kind, seed):
        """What is wrong with a run, if anything, and what it counted."""
        environment = dict(self.clean)
        if MODES[mode]:
            environment |= {"LD_PRELOAD": str(self.library), "WEFT_UDP": MODES[mode], "WEFT_LOG": "info",
                            "WEFT_DISCOVERY_PORT": str(DISCOVERY_PORT)}
        self.runs += 1
        command = [self.program, seed, RUN_MILLISECONDS, *KINDS[kind]]
        process = Process([str(word) for word in command], environment, self.work / f"log{self.runs}", cwd=self.work)
        try:
            ended = process.wait(RUN_LIMIT)
        finally:
            process.stop()
        result = process.result()
        if not ended:
            return f"does not end: {result.errors[-2000:]}", None
        found = SAID.search(result.output)
        if result.status != 0 or not found:
            lines = [line for line in result.errors.splitlines() if "info:" not in line]
            return f"{result.how()}: {' | '.join(lines)[:2000]}", None
        counts = dict(zip(NAMES, map(int, found.groups())))
        told = [tuple(map(int, numbers)) for numbers in OF_WEFT.findall(result.errors)]
        left, counts["by carrier"], counts["dropped by Weft"] = (sum(one[at] for one in told) for at in (0, 2, 3))
        return judge(mode, kind, counts, left), counts


def judge(mode, kind, counts, left):
    """What of the counts may not be; `left`: datagrams that left by carriers."""
    # Who is killed tells nothing of what it has sent, taken or dropped.
    if kind == "kills":
        return None
    missing = counts["sent"] - counts["came"]
    if not 0 <= missing <= counts["dropped by the kernel"] + counts["dropped by Weft"]:
        return f"{missing} are missing: {counts}"
    # The kernel counts datagrams of Weft's own too, which may hide one of the program's that went by a carrier.
    by_carriers = left - counts["by carrier"]
    if by_carriers > counts["dropped by Weft"]:
        return f"{by_carriers} of {left} by carriers are missing: {counts}"
    if MODES[mode] and not counts["by carrier"]:
        return f"none came by a carrier: {counts}"
    return None


def play(stage, mode, kind, numbers, seconds):
    """Runs one seed after the other; how it went, and why."""
    played = seeds.play(lambda seed: stage.run(mode, kind, seed), f"{mode}, {kind}", numbers, seconds,
                        None if kind == "quiet" else kind)
    told = ", ".join(f"{value} {name}" for name, value in played.sums.items())
    return played.how, played.why or f"{played.runs} runs, {told}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", type=Path, required=True, help="the built command")
    parser.add_argument("--seconds", type=float, default=12, help="for all modes and kinds together (12)")
    parser.add_argument("--seed", type=int, help="the first; else the time's")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--kinds", default=",".join(KINDS))
    arguments = parser.parse_args()
    modes, kinds = arguments.modes.split(","), arguments.kinds.split(",")
    unknown = [name for name in modes if name not in MODES] + [name for name in kinds if name not in KINDS]
    if unknown:
        parser.error(f"no such mode or kind: {unknown[0]}")
    numbers = itertools.count(arguments.seed if arguments.seed is not None else int(time.time()))
    counts = Counts()
    with tempfile.TemporaryDirectory(prefix="weft-crowd-") as work:
        stage = Stage(arguments.weft, work)
        stage.build()
        for mode, kind in itertools.product(modes, kinds):
            how, why = play(stage, mode, kind, numbers, arguments.seconds / len(modes) / len(kinds))
            counts.add(how)
            print(f"{how} {mode}, {kind}: {why}", flush=True)
    return counts.close()


if __name__ == "__main__":
    sys.exit(main())
