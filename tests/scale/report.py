"""The tables of docs/scale.md, from the record of a whole run."""

import re
import sys
from pathlib import Path

import rows

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
from record import median, row_of  # noqa: E402

MARK = re.compile(r"(<!-- tables -->\n).*?(<!-- end of tables -->)", re.DOTALL)
TITLES = {rows.RAW_TCP: "raw TCP", "weft crc=off": "Weft, CRC off", "weft crc=on": "Weft, CRC on",
          rows.GID: "Weft by GID, CRC on"}


def into(path, run):
    """Writes the tables between the marks of a document."""
    text = path.read_text(encoding="utf-8")
    tables = "\n".join(lines(run))
    path.write_text(MARK.sub(lambda found: found[1] + tables + "\n" + found[2], text), encoding="utf-8")


def lines(run):
    environment = run["environment"]
    yield ""
    yield (f"Measured {run['started'][:10]} on {environment['cores']} cores of {environment['cpu']}, "
           f"Linux {environment['kernel'].split()[0]}.")
    yield ""
    yield "### Throughput: answers per second, traffic on all connections"
    yield ""
    for octets, window, asleep in rows.ECHOES:
        title = (f"{octets if octets < 1024 else octets // 1024} {'octets' if octets < 1024 else 'KiB'}, "
                 f"{'one' if window == 1 else 'four'} under way on each, {rows.how(asleep)}")
        yield from beside(run, title, lambda count, each=(octets, window, asleep): rows.echo(*each, count), "{:,.0f}")
    yield "### Latency: one message at a time, each on the next connection; median round trip in µs"
    yield ""
    yield from beside(run, "64 octets, spinning", lambda count: rows.turns(False, count), "{:.1f}")
    yield from beside(run, "64 octets, asleep", lambda count: rows.turns(True, count), "{:.1f}")
    yield "### A storm: all connects at once, until the last is established, in ms"
    yield ""
    yield from beside(run, "connects at once", rows.storm, "{:.1f}", 1e-3)
    yield "### Memory of an idle connection, octets for each end"
    yield ""
    yield from memory(run)
    yield from by_gid(run)
    yield from across_processes(run)
    yield from written(run)


def figure(run, row, stack, key=None):
    """The median of a metric, of the row's own unless another is named; None where it was not measured."""
    return median(run, f"{row.path}/{row.name}", stack, key or row.metric)


def beside(run, title, row, form, scale=1):
    """A table with a column for each count, each stack beside raw TCP."""
    counts = [count for count in rows.COUNTS if figure(run, row(count), rows.RAW_TCP)]
    yield f"| {title} | " + " | ".join(f"{count:,}" for count in counts) + " |"
    yield "| --- |" + " ---: |" * len(counts)
    base = {count: figure(run, row(count), rows.RAW_TCP) for count in counts}
    yield "| raw TCP | " + " | ".join(form.format(base[count] * scale) for count in counts) + " |"
    for stack in rows.CM:
        own = {count: figure(run, row(count), stack) for count in counts}
        cells = [f"{form.format(own[count] * scale)} ({own[count] / base[count]:.2f} x)" if own[count] else "-"
                 for count in counts]
        yield f"| {TITLES[stack]} | " + " | ".join(cells) + " |"
    yield ""
    more = row(1).metric == "requests_per_s"
    yield f"Ratios are to raw TCP; {'more' if more else 'less'} is better."
    yield ""


def memory(run):
    counts = [count for count in rows.COUNTS if count >= 1000 and row_of(run, f"{rows.PATH}/{rows.memory(count).name}")]
    yield "| | " + " | ".join(f"{count:,}" for count in counts) + " |"
    yield "| --- |" + " ---: |" * len(counts)
    for stack in TITLES:
        for key, label in (("process_octets", "of the process, before traffic"), (rows.KERNEL, "of the kernel, before traffic"),
                           (rows.KERNEL_BUSY, "of the kernel, after traffic")):
            cells = [figure(run, rows.memory(count), stack, key) for count in counts]
            if any(cells):
                yield (f"| {TITLES[stack]}, {label} | "
                       + " | ".join("-" if one is None else f"{one:,.0f}" for one in cells) + " |")
    yield ""


def by_gid(run):
    counts = [count for count in rows.COUNTS if figure(run, rows.storm(count), rows.GID)]
    if not counts:
        return
    yield "### By GID and queue pair number"
    yield ""
    yield "| queue pairs | until each had an answer, ms | answers per second (64 octets, spinning) | octets of the process |"
    yield "| ---: | ---: | ---: | ---: |"
    for count in counts:
        cells = [figure(run, row, rows.GID)
                 for row in (rows.storm(count), rows.echo(*rows.ECHOES[0], count), rows.memory(count))]
        if None not in cells:
            yield f"| {count:,} | {cells[0] / 1e3:.1f} | {cells[1]:,.0f} | {cells[2]:,.0f} |"
    yield ""


def across_processes(run):
    row = rows.processes(*rows.PROCESSES)
    base = figure(run, row, rows.RAW_TCP)
    if not base:
        return
    number, count = rows.PROCESSES
    yield "### Across processes: 1 KiB messages, traffic on all, everybody asleep between messages"
    yield ""
    yield "| | processes x connections | all connected after | answers | per second |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for stack in (rows.RAW_TCP, *rows.CM):
        rate, answers, storm = (figure(run, row, stack, key) for key in (None, "answers", "connect_all_us"))
        if rate:
            yield (f"| {TITLES[stack]} | {number} x {count:,} | {storm / 1e6:.2f} s | {answers:,.0f} | "
                   f"{rate:,.0f} ({rate / base:.2f} x) |")
    yield ""


def written(run):
    row = rows.written(rows.WRITTEN)
    for stack in TITLES:
        answers = figure(run, row, stack, "answers")
        if answers:
            yield (f"With an RDMA Write of 4 KiB ahead of each 4 KiB message ({TITLES[stack]}, {rows.WRITTEN:,} queue pairs): "
                   f"{answers:,.0f} answers,\nevery octet of message, block and answer as it should be.")
            yield ""
