"""Weft and siw side by side: the same programs with both their ends in the guest, over the guest's loopback."""

import shutil
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

sys.path.append(str(Path(__file__).parents[1] / "programs"))
import checks  # noqa: E402

# Program, octets, iterations.
MEASURED = [
    ("ib_write_bw", 65536, 500), ("ib_send_bw", 65536, 500), ("ib_read_bw", 65536, 500), ("ib_write_bw", 1 << 20, 50),
    ("ib_write_lat", 64, 500), ("ib_send_lat", 64, 500), ("ib_read_lat", 64, 500),
]
ROUNDS = 3
TIMEOUT = 120.0
ADDRESS = "127.0.0.1"
# As siw does by default.
WEFT = "WEFT_CRC=off WEFT_FACE=iwarp WEFT_LOG=error /mnt/weft run --"


@dataclass
class Row:
    """One program's figures, median of the rounds."""

    program: str
    octets: int
    siw: float
    weft: float
    unit: str

    def line(self):
        return f"| {self.program} -s {self.octets} | {self.siw:.1f} {self.unit} | {self.weft:.1f} {self.unit} | " \
               f"{self.weft / self.siw:.2f} |"


class Unmeasured(Exception):
    """A program gave no figure; says what it said."""


def measure(machine, weft):
    """The rows, measured in turns."""
    install(machine, weft)
    machine.load_siw("stock")
    machine.delay(0)
    done = machine.shells["watch"].run("/usr/bin/rdma link add siwlo type siw netdev lo")
    if done.status != 0:
        raise Unmeasured(f"siw on the loopback: {done.output.strip()}")
    rows = []
    port = 30000
    for program, octets, iterations in MEASURED:
        figures = {"": [], WEFT: []}
        for _ in range(ROUNDS):
            for prefix, results in figures.items():
                port += 1
                results.append(one(machine, prefix, program, octets, iterations, port))
        unit = figures[""][0]["unit"]
        medians = [statistics.median(figure["value"] for figure in results) for results in figures.values()]
        rows.append(Row(program, octets, *medians, unit))
        print(f"measured {rows[-1].line()}", flush=True)
    return rows


def install(machine, weft):
    """Puts what was built here where the guest sees it."""
    shutil.copy(weft, machine.share / "weft")
    for name in ("libweft.so", "weft-libs"):
        source = weft.parent / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, machine.share / name)


def one(machine, prefix, program, octets, iterations, port):
    words = f"{prefix} {program} -R -F -p {port} -s {octets} -n {iterations}".strip()
    server, client = machine.shells["server"], machine.shells["client"]
    server.start(words)
    machine.listens(port, 30)
    client.start(f"{words} {ADDRESS}")
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
