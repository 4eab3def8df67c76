#!/usr/bin/env python3
"""Runs real RDMA programs under weft, cell by cell, and says which cells pass.

The last line is the counts; the exit status is 0 when nothing failed. See README.md beside this file.
"""

import argparse
import re
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import cells
import report
from play import Play
from stage import Stage

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/rig"))
import again  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", type=Path, default=ROOT / "target/release/weft", help="the command under test")
    parser.add_argument("--full", action="store_true", help="every case in every place (about half an hour)")
    parser.add_argument("--only", metavar="REGEX", type=re.compile, help="only cells whose line matches")
    parser.add_argument("--times", type=int, help="how often the cells `again and again` are played")
    parser.add_argument("--list", action="store_true", help="name the cells and run nothing")
    parser.add_argument("--logs", type=Path, default=ROOT / "target/test-logs/programs", help="where output goes")
    parser.add_argument("--json", type=Path, help="write the results there (default: programs.json in --logs)")
    parser.add_argument("--docs", type=Path, help="write the table of a full run there")
    return parser.parse_args()


def chosen(options):
    """The cells to play, those of one place together."""
    everything = cells.cells(quick=not options.full)
    if options.times:
        everything = [(replace(case, times=options.times) if case.kind == "again" else case, place)
                      for case, place in everything]
    return [(case, place) for case, place in everything
            if not options.only or options.only.search(f"{case.name} [{place}]")]


def folder(case, place):
    """What the logs of a cell begin with: `FOLDER.server.out` and so on."""
    return re.sub(r"[^a-z0-9]+", "-", f"{case}-{place}".lower()).strip("-")


def play(stage, case, place, log):
    """Plays one cell; the names of its logs begin with `log`."""
    start = time.monotonic()
    obstacle = stage.obstacle(case, place)
    if obstacle:
        return report.Result(case.name, place, report.SKIPPED, 0.0, obstacle)
    with Play(stage, case, place, log) as cell:
        complaint, figure = cell.run()
    outcome = report.FAILED if complaint else report.PASSED
    seconds = time.monotonic() - start
    return report.Result(case.name, place, outcome, round(seconds, 2), complaint, figure)


def once_more(first, second):
    """The result of a cell that failed, and has been played again. The logs of both times are kept."""
    if second.outcome == report.PASSED:
        again.say(f"{first.case} [{first.place}]", first.reason)
        return second
    print(second.line(), flush=True)
    return first


def run(options):
    options.logs.mkdir(parents=True, exist_ok=True)
    results = []
    stage = Stage(options.weft)
    try:
        for case, place in chosen(options):
            log = options.logs / folder(case.name, place)
            result = play(stage, case, place, log)
            print(result.line(), flush=True)
            if result.outcome == report.FAILED:
                with again.alone():
                    second = play(stage, case, place, log.with_name(f"{log.name}-again"))
                result = once_more(result, second)
            results.append(result)
    finally:
        stage.close()
    report.write_json(options.json or options.logs / "programs.json", results, options.full)
    if options.docs:
        options.docs.write_text(report.table(results), encoding="utf-8")
    return results


def main():
    # A terminated run takes its processes and namespaces down too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = arguments()
    if options.docs and (not options.full or options.only):
        sys.exit("--docs needs --full and no --only: the table in the docs is of a whole run")
    if options.list:
        for case, place in chosen(options):
            print(f"{case.name} [{place}]")
        return
    if not options.weft.exists():
        sys.exit(f"{options.weft} does not exist: run make build")
    results = run(options)
    failures = [result for result in results if result.outcome == report.FAILED]
    if failures:
        print("\nfailed cells (the ends of their output; the whole is in the folder --logs):")
        for result in failures:
            print(result.line())
            print(report.ends(options.logs / folder(result.case, result.place)), end="")
    print(report.counts(results))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
