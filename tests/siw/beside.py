"""Weft and siw side by side: the same programs with both their ends in the guest, from the guest's address to itself.

By itself it writes the bench's record, and the section of docs/interop.md:

    tests/siw/beside.py --json FILE [--docs docs/interop.md] [--limit SECONDS]
"""

import argparse
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import document
import kernel
from machine import GUEST, Link, Machine

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import checks  # noqa: E402
from record import Record, Row, cell_of, median  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
# Operation, octets, iterations, what is measured.
MEASURED = [
    ("write", 65536, 500, "bw"), ("send", 65536, 500, "bw"), ("read", 65536, 500, "bw"), ("write", 1 << 20, 50, "bw"),
    ("write", 64, 500, "lat"), ("send", 64, 500, "lat"), ("read", 64, 500, "lat"),
]
ROUNDS = 3
TIMEOUT = 120.0
PATH = "guest"
# With siw's default, CRC off.
STACKS = {"siw": "", "weft crc=off": "WEFT_CRC=off WEFT_FACE=iwarp WEFT_LOG=error /mnt/weft run --"}
UNITS = {"goodput_gbit_s": "Gbit/s", "half_rtt_us": "µs", "rtt_us": "µs"}
GBIT_OF_MIB = 8 * (1 << 20) / 1e9
HEADING = "## Side by side"


class Unmeasured(Exception):
    """A program gave no figure; says what it said."""


def row_of(operation, octets, kind):
    """The row of one program: a workload that the bench has too."""
    size = f"{octets >> 20}M" if octets >= 1 << 20 else f"{octets >> 10}K" if octets >= 1 << 10 else octets
    workload = {"op": operation, "size": octets, "mode": "polling"}
    if kind == "bw":
        bulk = {"kind": "bulk"} | workload
        return Row(PATH, f"{operation}-bw-{size}", "goodput_gbit_s", reference=("siw",), workload=bulk)
    metric = "rtt_us" if operation == "read" else "half_rtt_us"
    return Row(PATH, f"{operation}-lat-{size}-unpinned", metric, reference=("siw",),
               workload={"kind": "latency"} | workload | {"pinned": False})


def measure(machine, weft, limit=None):
    """The record of all rounds, measured in turns; no round begins behind `limit` seconds."""
    begun = time.monotonic()
    install(machine, weft)
    machine.load_siw("stock")
    machine.delay(0)
    record = Record(weft, ROUNDS)
    record.path(PATH, f"both ends in a guest (Linux {machine.kernel.version}, emulated, 2 processors), from its address to "
                      "itself over its loopback")
    port = 30000
    for number in range(ROUNDS):
        if number and limit and time.monotonic() - begun > limit * number / (number + 1):
            break
        for operation, octets, iterations, kind in MEASURED:
            for stack, prefix in STACKS.items():
                port += 1
                began = time.monotonic()
                words = f"{prefix} ib_{operation}_{kind} -R -F -p {port} -s {octets} -n {iterations}".strip()
                figure = one(machine, f"ib_{operation}_{kind}", words, port)
                value = figure["value"] * (GBIT_OF_MIB if kind == "bw" else 1)
                row = row_of(operation, octets, kind)
                record.sample(row, stack, began, {row.metric: value}, commands=[[words], [words, GUEST]])
            print(f"measured, round {number + 1}: {line(record.run, row)}", flush=True)
    record.finish()
    return record


def install(machine, weft):
    """Puts what was built here where the guest sees it."""
    shutil.copy(weft, machine.share / "weft")
    for name in ("libweft.so", "weft-libs"):
        source = weft.parent / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, machine.share / name)


def one(machine, program, words, port):
    """One program's figure, as it prints it."""
    server, client = machine.shells["server"], machine.shells["client"]
    server.start(words)
    machine.listens(port, 30)
    client.start(f"{words} {GUEST}")
    ended = client.poll(TIMEOUT)
    if ended is None:
        machine.end_programs(program)
        ended = client.poll(30)
    if server.poll(30) is None:
        machine.end_programs(program)
        server.poll(30)
    figure = checks.figure(SimpleNamespace(program=program), ended) if ended else None
    if not figure:
        said = " ".join(ended.output.split())[-200:] if ended else "nothing"
        raise Unmeasured(f"{words}: {said}")
    return figure


def line(run, row):
    """A row of the table in the docs: medians, and Weft's over siw's."""
    siw, weft = (median(run, f"{row.path}/{row.name}", stack, row.metric) for stack in STACKS)
    unit, digits = UNITS[row.metric], 3 if row.metric == "goodput_gbit_s" else 1
    return f"| {row.name} | {siw:.{digits}f} {unit} | {weft:.{digits}f} {unit} | {weft / siw:.2f} |"


def section(run):
    """What docs/interop.md says of a record."""
    rows = [row_of(operation, octets, kind) for operation, octets, _, kind in MEASURED]
    rounds = max(len(cell_of(row, "siw")["samples"]) for row in run["rows"])
    measured = {row["id"] for row in run["rows"]}
    return [HEADING, "",
            "Both ends in the guest, from its address to itself (which Linux takes over loopback, and where two ends of "
            f"Weft share memory), CRC off, median of {rounds} runs in turns. The guest's processor is emulated, so only "
            "the ratio means something: Weft's figure over siw's (of a latency less is better). Both programs spin on "
            "the guest's two processors, so what needs a third thread shows the scheduler (Weft's ib_write_lat does).",
            "",
            "| perftest | siw | Weft | ratio |", "| --- | --- | --- | --- |",
            *[line(run, row) for row in rows if f"{row.path}/{row.name}" in measured], ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", type=Path, default=ROOT / "target/release/weft", help="the command under test")
    parser.add_argument("--json", type=Path, required=True,
                        help="where the record goes, which `weft bench report` prints")
    parser.add_argument("--docs", type=Path, help="the table of a whole run: its section is replaced")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="how long the rounds may take")
    parser.add_argument("--cache", type=Path, default=kernel.cache_folder(), help="where the guest's kernel is kept")
    options = parser.parse_args()
    link = Link()
    machine = None
    try:
        machine = Machine(link, options.cache)
        record = measure(machine, options.weft.resolve(), options.limit)
        record.write(options.json)
        if options.docs:
            document.put(options.docs, "\n".join(section(record.run)))
    except (kernel.Unavailable, Unmeasured) as trouble:
        sys.exit(f"nothing measured: {trouble}")
    finally:
        if machine:
            machine.close()
        link.close()
    print("\n".join(section(record.run)))


if __name__ == "__main__":
    main()
