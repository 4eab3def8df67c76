"""The results: a line for each cell, the counts, the table in docs/interop.md."""

import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import beside
import matrix

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
from counts import Counts  # noqa: E402

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
    """The closing line."""
    return str(Counts.of(result.outcome for result in results))


@dataclass
class Report:
    """What the report says beside the cells."""

    kernel: str
    tshark: str
    beside: Optional[dict]  # the run of both stacks side by side


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
  ([decision 0020](decisions/0020-first-fpdu-probes.md)).
- siw that meets a fault while it sends an FPDU ends the connection without a Terminate, so the other end learns that it is over,
  and not why. Seen with a Write out of bounds that came between a Read Response and its CRC field.
- A fault in what comes together with the ready-to-receive message is more than siw survives. As the responder of a peer-to-peer connection
  it tells its connection manager that the connection is there once it has read what had come by then; when a fault is among that, it says
  only that the connection is closed, and the manager, which waits for the other word first, stops the kernel's worker
  (`kernel BUG at drivers/infiniband/core/iwcm.c:969`, in `cm_work_handler`). The Terminate still goes out; the program waits for ever, and when killed
  hangs in `siw_destroy_qp`. Seen here with a client that writes out of bounds in its very first FPDUs. It is not seen when the client waits for one
  answer before (`tests/siw/overrun.c`), nor without the peer-to-peer set-up (`WEFT_PEER_TO_PEER=off`, the client's `-f`).

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
        lines += beside.section(report.beside)
    if notes:
        lines += ["What does not work:", "", *[f"{number}. {note}" for number, note in enumerate(notes, start=1)], ""]
    return "\n".join(lines[:-1]) + "\n"


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
