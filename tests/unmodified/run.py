#!/usr/bin/env python3
"""Real socket programs, unmodified, under the hooks.

    tests/unmodified/run.py LIBRARY [--only REGEX] [--full] [--docs FILE]

Each program runs under hooks that change nothing (pass) and with every UDP socket offloaded at both ends (both);
programs of UDP also with the server or the client alone under Weft. They have to do what they do without: contents are
compared. A program that is not installed is skipped. Closes with `N passed, N failed, N skipped`; --docs writes a table
with a line for each program.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import again
import datagrams  # noqa: F401 (enters programs)
import streams  # noqa: F401
from bench import MODES, PROGRAMS, Bench, Skip
from counts import Counts


def one(library, title, mode):
    """How it went, why, and what was gathered and split."""
    function = PROGRAMS[title][0]
    with tempfile.TemporaryDirectory(prefix="weft-unmodified-") as folder:
        bench = Bench(library, mode, folder)
        how, why = "passed", ""
        try:
            function(bench)
        except Skip as reason:
            how, why = "skipped", str(reason)
        except (AssertionError, subprocess.TimeoutExpired, OSError, ValueError) as error:
            how, why = "failed", f"{error}"[:3000]
        finally:
            bench.end()
        return how, why, bench.counts()


def cell(result):
    how, _, (gathered, split) = result
    if how != "passed" or not (gathered or split):
        return how
    return f"passed ({gathered} gathered, {split} split)"


def table(results):
    rows = ["| program | compared | hooks alone | offloaded at both ends | server alone | client alone |",
            "| --- | --- | --- | --- | --- | --- |"]
    for title, (_, _, what, modes) in PROGRAMS.items():
        cells = [cell(results[title, mode]) if (title, mode) in results else "" if mode not in modes else "not run"
                 for mode in MODES]
        rows.append(f"| {title} | {what} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--only", default="")
    parser.add_argument("--full", action="store_true", help="all programs, not only those of every test run")
    parser.add_argument("--docs", help="put the table between the marks of this file")
    args = parser.parse_args()
    library = os.path.realpath(args.library)
    results = {}
    for title, (_, core, _, modes) in PROGRAMS.items():
        if not re.search(args.only, title) or not (core or args.full or args.only):
            continue
        for mode in modes:
            begin = time.monotonic()
            how, why, many = results[title, mode] = one(library, title, mode)
            if how == "failed":
                # Once more, by itself: what passes then is flaky.
                print(f"failed {title} ({mode}): {why}", flush=True)
                how, _, many = results[title, mode] = one(library, title, mode)
                if how == "passed":
                    again.say(f"{title} ({mode})", why)
                    why = ""
            took = f"{time.monotonic() - begin:.1f} s"
            done = f", {many[0]} gathered, {many[1]} split" if any(many) else ""
            print(f"{how} {title} ({mode}) {took}{done}{': ' if why else ''}{why}", flush=True)
    if args.docs:
        page = Path(args.docs)
        begin, end = "<!-- programs -->\n", "<!-- end -->\n"
        head, rest = page.read_text().split(begin)
        page.write_text(head + begin + table(results) + end + rest.split(end)[1])
    counts = Counts()
    for how, _, _ in results.values():
        counts.add(how)
    return counts.close()


if __name__ == "__main__":
    sys.exit(main())
