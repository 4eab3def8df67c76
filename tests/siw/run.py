#!/usr/bin/env python3
"""Linux siw in a guest and Weft here, each as client and as server.

The last line is the counts; the exit status is 0 when nothing failed. See README.md beside this file.
"""

import argparse
import contextlib
import itertools
import re
import signal
import sys
import time
from pathlib import Path

import beside
import conformance
import document
import kernel
import matrix
import outcome
import wireshark
from kernel import Unavailable
from machine import Link, Machine
from meet import Meeting, Stuck

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/rig"))
import again  # noqa: E402

OVERRUN = Path(__file__).with_name("overrun.c")
ECHO = ROOT / "tests/rsockets/ordinary-program/echo.c"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", type=Path, default=ROOT / "target/release/weft", help="the command under test")
    parser.add_argument("--quick", action="store_true", help="the cells that `make test` runs")
    parser.add_argument("--only", metavar="REGEX", type=re.compile, help="only cells whose line matches")
    parser.add_argument("--times", metavar="N", type=int, default=1, help="each cell so often, in turn (%(default)s)")
    parser.add_argument("--limit", metavar="SECONDS", type=float, help="leave what is not begun by then")
    parser.add_argument("--capture", action="store_true", help="keep a capture of every cell in --logs")
    parser.add_argument("--list", action="store_true", help="name the cells and run nothing")
    parser.add_argument("--cache", type=Path, default=kernel.cache_folder(), help="where the guest's kernel is kept")
    parser.add_argument("--logs", type=Path, default=ROOT / "target/test-logs/siw", help="where output goes")
    parser.add_argument("--docs", type=Path, help="write the table of a whole run there")
    options = parser.parse_args()
    if options.times < 1:
        parser.error("--times takes a whole number from 1 on")
    # What it starts runs elsewhere.
    options.weft, options.logs = options.weft.resolve(), options.logs.resolve()
    return options


def chosen(options):
    cells = [cell for cell in matrix.cells()
             if (cell.quick or not options.quick) and (not options.only or options.only.search(str(cell)))]
    return cells * options.times


class Rig:
    """The link and the guest, and what a run has to take down again."""

    def __init__(self, options):
        self.options = options
        self.ports = itertools.count(20000)
        self.tshark = wireshark.Tally()
        self.machine = None
        self.link = Link()
        try:
            self.boot()
        except BaseException:
            self.close()
            raise

    def boot(self):
        """Starts the guest."""
        self.siw, self.delay = None, 0
        try:
            self.machine = Machine(self.link, self.options.cache)
        except OSError as error:
            # No room, or a folder that may not be written.
            raise Unavailable(f"the guest cannot be made: {error}") from error
        try:
            for source, libraries in ((OVERRUN, ("-lrdmacm", "-libverbs")), (ECHO, ())):
                kernel.run("cc", "-O1", "-Wall", "-o", str(self.machine.share / source.stem), str(source), *libraries)
        except Unavailable as error:
            raise Unavailable(f"the guest's programs cannot be compiled ({error}); needs librdmacm-dev") from error

    def play(self, cell, attempt=""):
        """Carries out one cell; returns (complaint or None, figure or None). `attempt` ends the names of its logs."""
        log = self.options.logs / (re.sub(r"[^a-z0-9]+", "-", str(cell).lower()).strip("-") + attempt)
        if self.machine is None:
            self.boot()
        try:
            if cell.siw != self.siw:
                self.siw = None
                self.machine.load_siw(cell.siw.variant, cell.siw.parameters)
                self.siw = cell.siw
            if cell.delay != self.delay:
                self.machine.delay(cell.delay)
                self.delay = cell.delay
            meeting = Meeting(cell, self.link, self.machine, self.options.weft, next(self.ports), log)
            complaint, figure = meeting.run(self.options.capture)
            if complaint is None and self.options.capture:
                complaint = self.tshark.read(meeting.capture.file)
            return complaint, figure
        except Stuck as trouble:
            self.shut_down()
            return str(trouble), None
        except Unavailable:
            self.shut_down()
            raise

    def shut_down(self):
        """Ends the guest; the next cell starts it anew."""
        machine, self.machine = self.machine, None
        if machine:
            machine.close()

    def close(self):
        self.shut_down()
        self.link.close()


@contextlib.contextmanager
def within(seconds, what):
    """Gives up with `Unavailable` when the block takes longer; None for no limit."""
    def late(*_):
        raise Unavailable(f"{what} took longer than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(options):
    """Plays the cells; returns the results and, for the report, what else there is to say."""
    cells = chosen(options)
    options.logs.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    try:
        with within(options.limit, "making the guest"):
            rig = Rig(options)
    except Unavailable as reason:
        return [outcome.Result(cell, outcome.SKIPPED, 0.0, str(reason)) for cell in cells], None
    results = []
    try:
        version = rig.machine.kernel.version
        print(f"guest: Linux {version}, up after {time.monotonic() - begun:.0f} s", flush=True)
        for cell in cells:
            start = time.monotonic()
            if options.limit and start - begun > options.limit:
                verdict, reason, figure = outcome.SKIPPED, f"not begun within {options.limit:.0f} s", None
            else:
                verdict, reason, figure = play(rig, cell)
                if verdict == outcome.FAILED:
                    print(outcome.Result(cell, verdict, time.monotonic() - start, reason, figure).line(), flush=True)
                    first = reason
                    with again.alone():
                        verdict, reason, figure = play(rig, cell, "-again")
                    if verdict == outcome.PASSED:
                        again.say(cell, first)
            results.append(outcome.Result(cell, verdict, time.monotonic() - start, reason, figure))
            print(results[-1].line(), flush=True)
        if not options.docs:
            return results, None
        if rig.machine is None:
            rig.boot()
        return results, outcome.Report(version, rig.tshark.words(), measured(rig, options))
    finally:
        rig.close()


def measured(rig, options):
    """The run of both stacks side by side; None when that does not work, which says nothing about the cells."""
    try:
        record = beside.measure(rig.machine, options.weft)
    except (beside.Unmeasured, Unavailable) as trouble:
        print(f"side by side SKIPPED: {trouble}")
        return None
    record.write(options.docs.parent / "measurements" / time.strftime("%Y-%m-%d-siw-beside.json"))
    return record.run


def play(rig, cell, attempt=""):
    """What became of a cell, why, and its figure. A guest that does not answer says nothing about Weft."""
    try:
        reason, figure = rig.play(cell, attempt)
    except Unavailable as trouble:
        return outcome.SKIPPED, str(trouble), None
    return outcome.FAILED if reason else outcome.PASSED, reason, figure


def main():
    # A terminated run takes the guest and the namespace down too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = arguments()
    if options.docs and (options.quick or options.only or options.times != 1):
        sys.exit("--docs needs neither --quick, --only nor --times: the table in the docs is of one whole run")
    if options.list:
        print("\n".join(map(str, chosen(options))))
        return
    if not options.weft.exists():
        sys.exit(f"{options.weft} does not exist: run make build")
    options.weft = options.weft.resolve()
    options.capture = options.capture or options.docs is not None
    results, report = run(options)
    skipped = {result.reason for result in results if result.outcome == outcome.SKIPPED}
    for reason in sorted(skipped):
        print(f"siw SKIPPED: {reason}")
    if options.docs and not skipped:
        # A run of its own wrote that one.
        kept = document.section(options.docs, conformance.HEADING)
        options.docs.write_text(document.wrapped(outcome.table(results, report)), encoding="utf-8")
        if kept:
            document.put(options.docs, kept)
    print(outcome.counts(results))
    sys.exit(any(result.outcome == outcome.FAILED for result in results))


if __name__ == "__main__":
    main()
