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


@dataclass
class Report:
    """What the report says beside the cells."""

    kernel: str
    tshark: str
    beside: list


HEAD = """\
# Weft and Linux siw

Linux siw is an iWARP implementation that nobody here wrote. It runs in a QEMU guest (emulated, so slowly), joined to this
machine by a TAP device with frames of 1500 octets; Weft runs here. Written by a run of
[tests/siw](../tests/siw/README.md) (`make test-siw`); do not edit.

Each program runs unmodified at both ends. Passing means: both ends exit with status 0 and speak of no error, the
output is complete (every ping verified, every size a row of results), and where the last column says so, a capture of
the link, decoded by code that is not Weft's, shows what it has to. *tuned* is the same siw with the named compile-time
constant changed.

What one has to know to use the two together:

- perftest and librdmacm behave differently over iWARP and InfiniBand devices, and Weft's device says it is InfiniBand. Against siw or
  an iWARP RNIC set `WEFT_FACE=iwarp` for perftest, as is done here; rping needs nothing.
- Stock siw as the client promises no ready-to-receive message (its `peer_to_peer` is off), and RFC 5044 forbids the responder to send before
  it has heard from the client. A program whose server speaks first (`ib_write_lat`) then waits for ever, unless `WEFT_SPEAK_FIRST=on`.
- siw has no markers, no atomics and no immediate data, and as responder asks for no read depth with MPA revision 1. It sends
  Terminates with the bits of the control word mirrored; Weft reads both forms.
- siw may overlook an FPDU that comes with its own Reply's end; Weft sends it an empty one again
  ([decision 0020](decisions/0020-nudges.md)).

"""


def table(results, report):
    """docs/interop.md."""
    lines = [HEAD + f"Last run: Linux {report.kernel} in the guest, {platform.release()} here; {packages()}. "
             f"{counts(results)}. {report.tshark} (tshark's guesses at what program sent a Send are turned off: it takes "
             "short ones for RPC over RDMA and calls those malformed, siw's as well as Weft's.)", ""]
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
    if report.beside:
        lines += side_by_side(report.beside)
    if notes:
        lines += ["What does not work:", "", *[f"{number}. {note}" for number, note in enumerate(notes, start=1)], ""]
    return "\n".join(lines[:-1]) + "\n"


def side_by_side(rows):
    return ["## Side by side", "", "Both ends in the guest, over its loopback, CRC off, median of three runs in turns. The guest's "
            "processor is emulated, so only the ratio means something: Weft's figure over siw's.", "",
            "| program | siw | Weft | ratio |", "| --- | --- | --- | --- |", *[row.line() for row in rows], ""]


def verdict(cells, client, notes):
    found = [result for result in cells if result.cell.client == client]
    if not found:
        return ""
    if found[0].outcome == SKIPPED:
        return "not run"
    if found[0].outcome == PASSED:
        return "yes"
    notes.append(f"{found[0].cell}: {found[0].reason}")
    return f"no [{len(notes)}]"


def packages():
    names = ("rdmacm-utils", "perftest")
    done = subprocess.run(["dpkg-query", "-W", "-f=${Package} ${Version}, ", *names], capture_output=True, text=True,
                          check=False)
    return done.stdout.removesuffix(", ")
