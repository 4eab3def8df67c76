"""The tables of docs/scale.md, from the figures of a whole run."""

import re
import statistics

MARK = re.compile(r"(<!-- tables -->\n).*?(<!-- end of tables -->)", re.DOTALL)
STACKS = ("cm crc=off", "cm crc=on")
TITLES = {"sockets": "raw TCP", "cm crc=off": "Weft, CRC off", "cm crc=on": "Weft, CRC on",
          "gid crc=on": "Weft by GID, CRC on"}


def into(path, results):
    """Writes the tables between the marks of a document."""
    text = path.read_text(encoding="utf-8")
    tables = "\n".join(lines(results))
    path.write_text(MARK.sub(lambda found: found[1] + tables + "\n" + found[2], text), encoding="utf-8")


def lines(results):
    curves = [cell for cell in results["cells"] if cell["what"] == "curve"]
    environment = results["environment"]
    yield ""
    yield (f"Measured {results['started'][:10]} on {environment['cores']} cores of {environment['cpu']}, "
           f"Linux {environment['kernel']}.")
    yield ""
    yield "### Throughput: answers per second, traffic on all connections"
    yield ""
    for name, title in (("spin 64 x1", "64 octets, one under way on each, spinning"),
                        ("spin 64 x4", "64 octets, four under way on each, spinning"),
                        ("spin 16384 x1", "16 KiB, one under way on each, spinning"),
                        ("sleep 64 x1", "64 octets, one under way on each, asleep between messages")):
        yield from beside(curves, title, lambda cell, n=name: cell[n]["rate"], "{:,.0f}", more_is_better=True)
    yield "### Latency: one message at a time, each on the next connection; median round trip in µs"
    yield ""
    yield from beside(curves, "64 octets, spinning", lambda cell: cell["turns spin"]["median_us"], "{:.1f}")
    yield from beside(curves, "64 octets, asleep", lambda cell: cell["turns sleep"]["median_us"], "{:.1f}")
    yield "### A storm: all connects at once, until the last is established, in ms"
    yield ""
    yield from beside(curves, "connects at once", lambda cell: cell["storm"]["all_us"] / 1e3, "{:.1f}")
    yield "### Memory of an idle connection, octets for each end"
    yield ""
    yield from memory(curves)
    yield from others(results["cells"])


def median(curves, stack, count, figure):
    values = [figure(cell) for cell in curves if cell["stack"] == stack and cell["count"] == count]
    return statistics.median(values) if values else None


def beside(curves, title, figure, form, more_is_better=False):
    counts = sorted({cell["count"] for cell in curves if cell["stack"] == "sockets"})
    yield f"| {title} | " + " | ".join(f"{count:,}" for count in counts) + " |"
    yield "| --- |" + " ---: |" * len(counts)
    base = {count: median(curves, "sockets", count, figure) for count in counts}
    yield "| raw TCP | " + " | ".join(form.format(base[count]) for count in counts) + " |"
    for stack in STACKS:
        own = {count: median(curves, stack, count, figure) for count in counts}
        row = [f"{form.format(own[count])} ({own[count] / base[count]:.2f} x)" if own[count] and base[count] else "-"
               for count in counts]
        yield f"| {TITLES[stack]} | " + " | ".join(row) + " |"
    yield ""
    yield f"Ratios are to raw TCP; {'more' if more_is_better else 'less'} is better."
    yield ""


def memory(curves):
    counts = sorted({cell["count"] for cell in curves if cell["count"] >= 1000})
    yield "| | " + " | ".join(f"{count:,}" for count in counts) + " |"
    yield "| --- |" + " ---: |" * len(counts)
    for stack in ("sockets", *STACKS, "gid crc=on"):
        for where, title in (("process", "of the process"), ("kernel", "of the kernel")):
            for when in ("idle", "busy"):
                cells = [median(curves, stack, count, lambda cell: cell[when][where]) for count in counts]
                if where == "process" and when == "busy":
                    continue
                if any(cells):
                    label = "after traffic" if when == "busy" else "before traffic"
                    yield (f"| {TITLES[stack]}, {title}, {label} | "
                           + " | ".join("-" if one is None else f"{one:,.0f}" for one in cells) + " |")
    yield ""


def others(cells):
    by_gid = [cell for cell in cells if cell["what"] == "curve" and cell["stack"].startswith("gid")]
    if by_gid:
        yield "### By GID and queue pair number"
        yield ""
        yield "| queue pairs | until each had an answer, ms | answers per second (64 octets, spinning) | octets of the process |"
        yield "| ---: | ---: | ---: | ---: |"
        for cell in by_gid:
            yield (f"| {cell['count']:,} | {cell['storm']['all_us'] / 1e3:.1f} | {cell['spin 64 x1']['rate']:,.0f} | "
                   f"{cell['idle']['process']:,.0f} |")
        yield ""
    many = [cell for cell in cells if cell["what"] == "processes"]
    if many:
        base = next((cell["rate"] for cell in many if cell["stack"] == "sockets"), None)
        yield "### Across processes: 1 KiB messages, traffic on all, everybody asleep between messages"
        yield ""
        yield "| | processes x connections | all connected after | answers | per second |"
        yield "| --- | ---: | ---: | ---: | ---: |"
        for cell in many:
            ratio = f" ({cell['rate'] / base:.2f} x)" if base else ""
            yield (f"| {TITLES[cell['stack']]} | {cell['processes']} x {cell['count']:,} | {cell['storm_s']:.2f} s | "
                   f"{cell['answers']:,} | {cell['rate']:,.0f}{ratio} |")
        yield ""
    for cell in cells:
        if cell["what"] == "verified":
            yield (f"With an RDMA Write of 4 KiB ahead of each 4 KiB message ({TITLES[cell['stack']] if cell['stack'] in TITLES else cell['stack']}, "
                   f"{cell['count']:,} queue pairs): {cell['answers']:,} answers, every octet of message, block and answer as it should be.")
            yield ""
