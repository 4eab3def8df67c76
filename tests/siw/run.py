#!/usr/bin/env python3
"""Linux siw in a guest and Weft here, each as client and as server.

The last line is the counts; the exit status is 0 when nothing failed. See README.md beside this file.
"""

import argparse
import itertools
import re
import signal
import sys
import time
from pathlib import Path

import kernel
import matrix
import outcome
from kernel import Unavailable
from machine import Link, Machine
from meet import Meeting, Stuck

ROOT = Path(__file__).resolve().parents[2]
OWN = Path(__file__).with_name("overrun.c")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", type=Path, default=ROOT / "target/release/weft", help="the command under test")
    parser.add_argument("--quick", action="store_true", help="the cells that `make test` runs")
    parser.add_argument("--only", metavar="REGEX", type=re.compile, help="only cells whose line matches")
    parser.add_argument("--limit", metavar="SECONDS", type=float, help="leave what is not begun by then")
    parser.add_argument("--capture", action="store_true", help="keep a capture of every cell in --logs")
    parser.add_argument("--list", action="store_true", help="name the cells and run nothing")
    parser.add_argument("--cache", type=Path, default=kernel.cache_folder(), help="where the guest's kernel is kept")
    parser.add_argument("--logs", type=Path, default=ROOT / "target/test-logs/siw", help="where output goes")
    parser.add_argument("--docs", type=Path, help="write the table of a whole run there")
    return parser.parse_args()


def chosen(options):
    return [cell for cell in matrix.cells()
            if (cell.quick or not options.quick) and (not options.only or options.only.search(str(cell)))]


class Rig:
    """The link and the guest, and what a run has to take down again."""

    def __init__(self, options):
        self.options = options
        self.ports = itertools.count(20000)
        self.machine = None
        self.link = Link()
        try:
            self.boot()
        except BaseException:
            self.close()
            raise

    def boot(self):
        """Starts the guest, or starts it anew."""
        if self.machine:
            self.machine.close()
        self.siw, self.delay = None, 0
        self.machine = Machine(self.link, self.options.cache)
        try:
            kernel.run("cc", "-O1", "-Wall", "-o", str(self.machine.share / OWN.stem), str(OWN), "-lrdmacm",
                       "-libverbs")
        except Unavailable as error:
            raise Unavailable(f"{OWN.name} cannot be compiled ({error}); it needs librdmacm-dev") from error

    def play(self, cell):
        """Carries out one cell; returns (complaint or None, figure or None)."""
        log = self.options.logs / re.sub(r"[^a-z0-9]+", "-", str(cell).lower()).strip("-")
        try:
            if cell.siw != self.siw:
                self.siw = None
                self.machine.load_siw(cell.siw.variant, cell.siw.parameters)
                self.siw = cell.siw
            if cell.delay != self.delay:
                self.machine.delay(cell.delay)
                self.delay = cell.delay
            meeting = Meeting(cell, self.link, self.machine, self.options.weft, next(self.ports), log)
            return meeting.run(self.options.capture)
        except (Stuck, Unavailable) as trouble:
            self.boot()
            return str(trouble), None

    def close(self):
        if self.machine:
            self.machine.close()
        self.link.close()


def run(options):
    """Plays the cells; returns the results and the guest's kernel version."""
    cells = chosen(options)
    options.logs.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    try:
        rig = Rig(options)
    except Unavailable as reason:
        return [outcome.Result(cell, outcome.SKIPPED, 0.0, str(reason)) for cell in cells], None
    results = []
    try:
        print(f"guest: Linux {rig.machine.kernel.version}, up after {time.monotonic() - begun:.0f} s", flush=True)
        for cell in cells:
            start = time.monotonic()
            if options.limit and start - begun > options.limit:
                verdict, reason, figure = outcome.SKIPPED, f"not begun within {options.limit:.0f} s", None
            else:
                reason, figure = rig.play(cell)
                verdict = outcome.FAILED if reason else outcome.PASSED
            results.append(outcome.Result(cell, verdict, time.monotonic() - start, reason, figure))
            print(results[-1].line(), flush=True)
        return results, rig.machine.kernel.version
    finally:
        rig.close()


def main():
    # A terminated run takes the guest and the namespace down too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = arguments()
    if options.docs and (options.quick or options.only):
        sys.exit("--docs needs neither --quick nor --only: the table in the docs is of a whole run")
    if options.list:
        print("\n".join(map(str, chosen(options))))
        return
    if not options.weft.exists():
        sys.exit(f"{options.weft} does not exist: run make build")
    options.weft = options.weft.resolve()
    results, version = run(options)
    skipped = {result.reason for result in results if result.outcome == outcome.SKIPPED}
    for reason in sorted(skipped):
        print(f"siw SKIPPED: {reason}")
    if options.docs and not skipped:
        options.docs.write_text(outcome.table(results, version), encoding="utf-8")
    print(outcome.counts(results))
    sys.exit(any(result.outcome == outcome.FAILED for result in results))


if __name__ == "__main__":
    main()
