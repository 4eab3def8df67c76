#!/usr/bin/env python3
"""Real socket programs, unmodified, under the hooks.

    tests/unmodified/run.py LIBRARY [--only REGEX] [--full] [--docs FILE]

Each program runs under hooks that change nothing (pass) and with every UDP socket offloaded at both ends (both);
programs of UDP also with the server or the client alone under Weft, and over carriers in the same ways (uoe,
uoe-server, uoe-client); those of TCP over DDP: at both ends (ddp), as a server of plain clients (ddp-server), where
both ends prefer it (prefer), as the client of a plain server (prefer-client). They have to do what they do without:
contents are compared. A program that is not installed is
skipped. Closes with `N passed, N failed, N skipped`; --docs writes a table with a line for each program.
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
from bench import OF_KIND, PROGRAMS, Bench, Skip
from counts import Counts


COLUMNS = {"pass": "hooks alone", "both": "UDP offloaded at both ends", "server": "server alone",
           "client": "client alone", "uoe": "carriers at both ends", "uoe-server": "carriers, server alone",
           "uoe-client": "carriers, client alone", "ddp": "DDP at both ends", "ddp-server": "DDP, plain client",
           "prefer": "prefers DDP at both ends", "prefer-client": "prefers, plain server"}


def one(library, title, mode):
    """How it went, why, and what was counted."""
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


def cell(result, is_meant):
    if result is None:
        return "not run" if is_meant else "-"
    how, _, many = result
    return f"{how} ({told(many)})" if how == "passed" and any(many) else how


def told(many):
    """What was counted, but for zeros."""
    words = ("gathered", "split", "by carrier", "over DDP")
    return ", ".join(f"{count} {word}" for count, word in zip(many, words) if count)


def table(results):
    """A table for programs of each kind."""
    tables = []
    for kind, modes in OF_KIND.items():
        titles = ["program", "compared", *(COLUMNS[mode] for mode in modes)]
        rows = [f"| {' | '.join(titles)} |", "| --- " * len(titles) + "|"]
        for title, (function, _, what, of_program) in PROGRAMS.items():
            if function.__module__ != kind:
                continue
            cells = [cell(results.get((title, mode)), mode in of_program) for mode in modes]
            rows.append(f"| {title} | {what} | {' | '.join(cells)} |")
        tables.append("\n".join(rows) + "\n")
    return "\n".join(tables)


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
                with again.alone():
                    how, _, many = results[title, mode] = one(library, title, mode)
                if how == "passed":
                    again.say(f"{title} ({mode})", why)
                    why = ""
            took = f"{time.monotonic() - begin:.1f} s"
            done = f", {told(many)}" if any(many) else ""
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
