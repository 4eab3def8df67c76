"""The results: a line for each cell, the counts, JSON, and the table in docs/programs.md."""

import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional

import cells

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
from counts import Counts  # noqa: E402

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
LAST_LINES = 6  # of each output of a failed cell, in the report


@dataclass
class Result:
    """What became of a cell."""

    case: str
    place: cells.Place
    outcome: str  # passed, failed, skipped
    seconds: float
    reason: Optional[str] = None  # of a failure or a skip
    figure: Optional[dict] = None  # octets, value, unit

    def line(self):
        figure = f"{self.figure['value']:.1f} {self.figure['unit']}" if self.figure else ""
        said = self.reason or figure
        return f"{self.outcome:7} {self.seconds:5.1f} s  {self.case:47} [{self.place}]  {said}".rstrip()


def counts(results):
    """The closing line."""
    return str(Counts.of(result.outcome for result in results))


def ends(log):
    """The last lines that each end of a cell wrote, indented; `log` is what the names of its logs begin with."""
    lines = []
    for file in sorted(log.parent.glob(f"{log.name}.*")):
        said = file.read_text(errors="replace").strip().splitlines()[-LAST_LINES:]
        lines += [f"    {file.name.removeprefix(log.name)[1:]}: {line}" for line in said]
    return "".join(line + "\n" for line in lines)


def write_json(path, results, full):
    document = {
        "schema": "weft-programs/1",
        "run": "full" if full else "quick",
        "environment": environment(),
        "cells": [asdict(result) for result in results],
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")


def environment():
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "packages": {name: version(name) for name in ("perftest", "rdmacm-utils", "ibverbs-utils", "qperf", "fio")},
    }


def version(package):
    """The installed version of a Debian package, or None."""
    try:
        done = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True,
                              check=False)
    except OSError:
        return None
    return done.stdout or None


COLUMNS = [("ordinary", "loopback"), ("root", "loopback"), ("ordinary", "veth"), ("root", "veth")]

HEAD = """\
# Which programs run

Unmodified programs from Debian's packages, each under `weft run --`, two processes on one machine without an RDMA
device. Written by a full run of [tests/programs](../tests/programs/README.md) (`make test-full`); do not edit.

Every cell is run with the CRC on; programs that connect with `rdma_cm`, plainly and with some options, with it off as
well, and then `yes` means that both passed. *Two hosts* are two network namespaces joined by a veth pair with an MTU of
1500. An ordinary user is one with no privilege and a memlock limit of 8 MiB. What counts as passing: both ends exit
with status 0, no line of either speaks of an error, and the output is complete (every ping validated, every row of
results there); for the endings, that the other end notices and ends of its own accord, within 1 s of Ctrl-C and 2 s of
SIGKILL. `-` is what is not played there: processes of MPI on two hosts are started on the other by root.

"""


def table(results):
    """docs/programs.md."""
    by_cell = {(result.case, result.place): result for result in results}
    notes = []
    rows = []
    for case in cells.cases(quick=False):
        columns = [verdict(by_cell, case, user, network, notes) for user, network in COLUMNS]
        rows.append(f"| `{case.name}` | " + " | ".join(columns) + " |")
    env = environment()
    packages = ", ".join(f"{name} {found}" for name, found in env["packages"].items() if found)
    lines = [
        HEAD + f"Last run: Linux {env['kernel']} on {env['machine']}, {env['cpus']} CPUs;\n{packages}.\n"
        f"{counts(results)}.",
        "",
        "| program | loopback, ordinary user | loopback, root | two hosts, ordinary user | two hosts, root |",
        "| --- | --- | --- | --- | --- |",
        *rows,
    ]
    if notes:
        lines += ["", "What does not run:", "", *[f"{number}. {note}" for number, note in enumerate(notes, start=1)]]
    return "\n".join(lines) + "\n"


def verdict(by_cell, case, user, network, notes):
    """One field of the table; reasons go to the notes below it."""
    places = [cells.Place(user, network, crc) for crc in case.crc]
    pair = {place.crc: by_cell.get((case.name, place)) for place in places if case.suits(place)}
    if not pair:
        return "-"
    passed = [crc for crc, result in pair.items() if result and result.outcome == PASSED]
    if len(passed) == len(pair):
        return "yes"
    number = None
    for crc, result in pair.items():
        if crc in passed:
            continue
        note = f"`{case.name}`, CRC {crc}: {result.outcome if result else 'not run'}"
        note += f": {result.reason}" if result and result.reason else ""
        if note not in notes:
            notes.append(note)
        number = number or notes.index(note) + 1
    return f"CRC {passed[0]} only [{number}]" if passed else f"no [{number}]"
