"""The results: a line for each cell, the counts, the table in docs/interop.md."""

import platform
import subprocess
from collections import Counter
from dataclasses import dataclass
from typing import Optional

import matrix

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass
class Result:
    """What became of a cell."""

    cell: matrix.Cell
    outcome: str
    seconds: float
    reason: Optional[str] = None
    figure: Optional[dict] = None

    def line(self):
        figure = f"{self.figure['value']:.1f} {self.figure['unit']}" if self.figure else ""
        return f"{self.outcome:7} {self.seconds:5.1f} s  {self.cell}  {self.reason or figure}".rstrip()


def counts(results):
    number = Counter(result.outcome for result in results)
    return f"{number[PASSED]} passed, {number[FAILED]} failed, {number[SKIPPED]} skipped"


HEAD = """\
# Weft and Linux siw

Linux siw is an iWARP implementation that nobody here wrote. It runs in a QEMU guest (emulated, so slowly), joined to this
machine by a TAP device with frames of 1500 octets; Weft runs here. Written by a run of
[tests/siw](../tests/siw/README.md) (`make test-siw`); do not edit.

Each program runs unmodified at both ends. Passing means: both ends exit with status 0 and speak of no error, the
output is complete (every ping verified, every size a row of results), and where the last column says so, a capture of
the link, decoded by code that is not Weft's, shows what it has to. *tuned* is the same siw with the named compile-time
constant changed.

"""


def table(results, version):
    """docs/interop.md."""
    lines = [HEAD + f"Last run: Linux {version} in the guest, {platform.release()} here; {packages()}. "
             f"{counts(results)}.", ""]
    groups = {}
    for result in results:
        groups.setdefault(result.cell.group, {}).setdefault(result.cell.name, []).append(result)
    notes = []
    for group, rows in groups.items():
        lines += [f"## {group}", "", "| what | siw client, Weft server | Weft client, siw server | siw | shown |",
                  "| --- | --- | --- | --- | --- |"]
        for name, cells in rows.items():
            fields = [verdict(cells, client, notes) for client in (matrix.SIW, matrix.WEFT)]
            builds = ", ".join(sorted({str(result.cell.siw) for result in cells}))
            captured = "by capture" if any(result.cell.shown for result in cells) else ""
            lines.append(f"| {name} | {' | '.join(fields)} | {builds} | {captured} |")
        lines.append("")
    if notes:
        lines += ["What does not work:", "", *[f"{number}. {note}" for number, note in enumerate(notes, start=1)], ""]
    return "\n".join(lines[:-1]) + "\n"


def verdict(cells, client, notes):
    found = [result for result in cells if result.cell.client == client]
    if not found:
        return ""
    if found[0].outcome == PASSED:
        return "yes"
    notes.append(f"{found[0].cell}: {found[0].reason}")
    return f"no [{len(notes)}]"


def packages():
    names = ("rdmacm-utils", "perftest")
    done = subprocess.run(["dpkg-query", "-W", "-f=${Package} ${Version}, ", *names], capture_output=True, text=True,
                          check=False)
    return done.stdout.removesuffix(", ")
