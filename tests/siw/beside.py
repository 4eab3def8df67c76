"""Weft and siw side by side: the same programs with both their ends in the guest, from the guest's address to itself.

By itself it writes the raw figures, and the section of docs/interop.md:

    tests/siw/beside.py --json FILE [--docs docs/interop.md] [--limit SECONDS]
"""

import argparse
import json
import platform
import shutil
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace

import document
import kernel
from machine import GUEST, Link, Machine

sys.path.append(str(Path(__file__).parents[1] / "programs"))
import checks  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
# Program, octets, iterations.
MEASURED = [
    ("ib_write_bw", 65536, 500), ("ib_send_bw", 65536, 500), ("ib_read_bw", 65536, 500), ("ib_write_bw", 1 << 20, 50),
    ("ib_write_lat", 64, 500), ("ib_send_lat", 64, 500), ("ib_read_lat", 64, 500),
]
ROUNDS = 3
TIMEOUT = 120.0
# As siw does by default.
WEFT = "WEFT_CRC=off WEFT_FACE=iwarp WEFT_LOG=error /mnt/weft run --"
HEADING = "## Side by side"


@dataclass
class Row:
    """One program's figures, one of each stack for every round."""

    program: str
    octets: int
    iterations: int
    unit: str = ""
    siw: list[float] = field(default_factory=list)
    weft: list[float] = field(default_factory=list)

    def line(self):
        siw, weft = statistics.median(self.siw), statistics.median(self.weft)
        return f"| {self.program} -s {self.octets} | {siw:.1f} {self.unit} | {weft:.1f} {self.unit} | {weft / siw:.2f} |"


class Unmeasured(Exception):
    """A program gave no figure; says what it said."""


def measure(machine, weft, limit=None):
    """The rows, measured in turns; no round begins behind `limit` seconds."""
    begun = time.monotonic()
    install(machine, weft)
    machine.load_siw("stock")
    machine.delay(0)
    rows = [Row(*measured) for measured in MEASURED]
    port = 30000
    for number in range(ROUNDS):
        if number and limit and time.monotonic() - begun > limit * number / (number + 1):
            break
        for row in rows:
            for prefix, figures in (("", row.siw), (WEFT, row.weft)):
                port += 1
                figure = one(machine, prefix, row, port)
                row.unit = figure["unit"]
                figures.append(figure["value"])
            print(f"measured, round {number + 1}: {row.line()}", flush=True)
    return rows


def install(machine, weft):
    """Puts what was built here where the guest sees it."""
    shutil.copy(weft, machine.share / "weft")
    for name in ("libweft.so", "weft-libs"):
        source = weft.parent / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, machine.share / name)


def one(machine, prefix, row, port):
    words = f"{prefix} {row.program} -R -F -p {port} -s {row.octets} -n {row.iterations}".strip()
    server, client = machine.shells["server"], machine.shells["client"]
    server.start(words)
    machine.listens(port, 30)
    client.start(f"{words} {GUEST}")
    ended = client.poll(TIMEOUT)
    if ended is None:
        machine.end_programs(row.program)
        ended = client.poll(30)
    if server.poll(30) is None:
        machine.end_programs(row.program)
        server.poll(30)
    figure = checks.figure(SimpleNamespace(program=row.program), ended) if ended else None
    if not figure:
        said = " ".join(ended.output.split())[-200:] if ended else "nothing"
        raise Unmeasured(f"{words}: {said}")
    return figure


def section(rows):
    """What docs/interop.md says of them."""
    return [HEADING, "", f"Both ends in the guest, from its address to itself (which Linux takes over loopback), CRC off, median of {len(rows[0].siw)} runs in turns. The guest's "
            "processor is emulated, so only the ratio means something: Weft's figure over siw's (of a latency less is better). Both "
            "programs spin on the guest's two processors, so what needs a third thread shows the scheduler (Weft's ib_write_lat does).", "",
            "| program | siw | Weft | ratio |", "| --- | --- | --- | --- |", *[row.line() for row in rows], ""]


def write_raw(file, rows, guest):
    """The raw figures, with what they were taken on."""
    raw = {"date": time.strftime("%Y-%m-%d"), "guest": f"Linux {guest}, emulated (TCG), 2 processors", "host": platform.release(),
           "path": "both ends in the guest, from its address to itself over the loopback, CRC off", "rows": [asdict(row) for row in rows]}
    file.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", type=Path, default=ROOT / "target/release/weft", help="the command under test")
    parser.add_argument("--json", type=Path, required=True, help="where the raw figures go")
    parser.add_argument("--docs", type=Path, help="the table of a whole run: its section is replaced")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="how long the rounds may take")
    parser.add_argument("--cache", type=Path, default=kernel.cache_folder(), help="where the guest's kernel is kept")
    options = parser.parse_args()
    link = Link()
    machine = None
    try:
        machine = Machine(link, options.cache)
        rows = measure(machine, options.weft.resolve(), options.limit)
        write_raw(options.json, rows, machine.kernel.version)
        if options.docs:
            document.put(options.docs, "\n".join(section(rows)))
    except (kernel.Unavailable, Unmeasured) as trouble:
        sys.exit(f"nothing measured: {trouble}")
    finally:
        if machine:
            machine.close()
        link.close()
    print("\n".join(section(rows)))


if __name__ == "__main__":
    main()
