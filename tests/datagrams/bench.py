#!/usr/bin/env python3
"""What the hooks cost, and what UDP segmentation offload gives, against the plain kernel in the same run.

    tests/datagrams/bench.py LIBRARY --json FILE [--times N] [PART...]     parts: calls streams lo veth delay (all)
    tests/datagrams/bench.py LIBRARY --json FILE --beside PATH [--pairs N] [PART...]
    tests/datagrams/bench.py --table FILE                      the tables of docs/sockets-bench.md, from such a file

The sender has one core and the receiver another; the ways alternate within a run, and a figure is the median of the runs.
`veth` makes a pair of namespaces with an MTU of 1500 (privilege). A part takes up to 40 seconds for each of N (5) times.

With --beside the ways that a build of Weft has a part in are taken with LIBRARY and with the library of a second build
in turn, and the exit status is 1 where a figure is slower (tests/rig/pairs.py).
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import pairs  # noqa: E402

HERE = Path(__file__).resolve().parent
LIBRARIES = ("libweft_preload.so", "lib/weft/libweft_preload.so")  # in a build's folder, and under a prefix
SIZES = {"lo": [64, 512, 1448, 8192, 32768, 65507], "veth": [64, 512, 1448, 8192, 65507]}
# What is under the receiver and under the sender, and whether these do it themselves.
WAYS = {
    "kernel": (None, None, False),
    "weft": ("gso", "gso", False),
    "weft, sender": (None, "gso", False),
    "weft, receiver": ("gso", None, False),
    "own GSO/GRO": (None, None, True),
}
PASS = "gso port=1"


class Rig:
    def __init__(self, library, folder):
        self.library = os.path.realpath(library)
        self.rate = Path(folder) / "rate"
        self.port = 24000
        subprocess.run(["cc", "-std=gnu11", "-O2", "-o", self.rate, HERE / "rate.c"], check=True)

    def environment(self, rule):
        plain = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_") and k != "LD_PRELOAD"}
        return {**plain, "LD_PRELOAD": self.library, "WEFT_UDP": rule} if rule else plain

    def start(self, rule, *words, core=0, within=()):
        command = [*within, "taskset", "-c", str(core), *[str(word) for word in words]]
        return subprocess.Popen(command, env=self.environment(rule), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)

    def run(self, rule, *words, **options):
        out, err = self.start(rule, *words, **options).communicate(timeout=60)
        return out, err


def numbers(line):
    return {name: float(value) for name, value in re.findall(r"([\w.]+)=([\d.]+)", line)}


# Each part is a list of cases: what names it, whether the library has a part in it, and how it is taken once.


def calls(rig):
    """Nanoseconds of a call, plain, with hooks and no rule, and with hooks that follow every descriptor."""
    def take(rule):
        out, _ = rig.run(rule, rig.rate, "calls", 4_000_000)
        return numbers(out)
    for way, rule in {"no preload": None, "hooks, no rule": "off", "hooks, pass": PASS, "gso": "gso"}.items():
        yield {"way": way}, rule is not None, lambda rule=rule: take(rule)


def streams(rig):
    """iperf3 over TCP and redis-benchmark, loopback, without and with the hooks at both ends."""
    def take(rule):
        rig.port += 1
        server = rig.start(rule, "iperf3", "-s", "-1", "-p", rig.port)
        time.sleep(0.3)
        out, _ = rig.run(rule, "iperf3", "-c", "127.0.0.1", "-p", rig.port, "-t", "2", "-J", core=1)
        server.communicate(timeout=10)
        gbit = json.loads(out)["end"]["sum_received"]["bits_per_second"] / 1e9
        rig.port += 1
        server = rig.start(rule, "redis-server", "--port", rig.port, "--save", "")
        time.sleep(0.4)
        out, _ = rig.run(rule, "redis-benchmark", "-p", rig.port, "-n", 150_000, "-c", 20, "-t", "get", "--csv", core=1)
        rig.run(None, "redis-cli", "-p", rig.port, "shutdown", "nosave")
        server.communicate(timeout=10)
        return {"tcp_gbit": gbit, "requests_per_second": float(out.strip().splitlines()[-1].split(",")[1].strip('"'))}
    for way, rule in {"no preload": None, "hooks, pass": PASS}.items():
        yield {"way": way}, rule is not None, lambda rule=rule: take(rule)


def one(rig, way, size, address, within):
    server, client, own = WAYS[way]
    rig.port += 1
    receiver = rig.start(server, rig.rate, "receive", rig.port, "1", *["gro"] * own, core=0, within=within[0])
    time.sleep(0.15)
    sent, complaint = rig.run(client, rig.rate, "send", address, rig.port, size, "0.6", *["gso"] * own, core=1,
                              within=within[1])
    if not numbers(sent) or complaint:
        receiver.kill()
        receiver.communicate()
        return {"refused": True}
    got, _ = receiver.communicate(timeout=20)
    return {"send": numbers(sent), "receive": numbers(got)}


def goodput(rig, path="lo", address="127.0.0.1", within=((), ())):
    """Datagrams as fast as they go, in every size and every way."""
    for size in SIZES[path]:
        for way in WAYS:
            yield ({"path": path, "size": size, "way": way}, any(WAYS[way][:2]),
                   lambda way=way, size=size: one(rig, way, size, address, within))


@contextlib.contextmanager
def namespaces():
    """Two namespaces with an MTU of 1500 between them: the address of the first, and what runs a command in each."""
    names = [f"weft-bench-{os.getpid()}-{side}" for side in "ab"]
    ip = lambda *words: subprocess.run(["ip", *words], check=True)  # noqa: E731
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "weftb0", "netns", names[0], "type", "veth", "peer", "name", "weftb1", "netns", names[1])
        for number, name in enumerate(names):
            ip("-n", name, "address", "add", f"10.213.0.{number + 1}/24", "dev", f"weftb{number}")
            ip("-n", name, "link", "set", f"weftb{number}", "up")
        yield "10.213.0.1", [("ip", "netns", "exec", name) for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def delay(rig):
    """One way delay and jitter of datagrams at a pace, and half a round trip of an idle program."""
    def idle(server, client):
        rig.port += 1
        receiver = rig.start(server, rig.rate, "answer", rig.port, core=0)
        time.sleep(0.15)
        out, _ = rig.run(client, rig.rate, "ask", "127.0.0.1", rig.port, 20_000, core=1)
        receiver.communicate(timeout=10)
        return numbers(out)

    def paced(server, client, size, rate):
        rig.port += 1
        receiver = rig.start(server, rig.rate, "delay", rig.port, 1, core=0)
        time.sleep(0.15)
        rig.run(client, rig.rate, "pace", "127.0.0.1", rig.port, size, rate, 0.5, core=1)
        out, _ = receiver.communicate(timeout=20)
        return numbers(out)
    for way in ("kernel", "weft", "weft, sender", "weft, receiver"):
        server, client, _ = WAYS[way]
        ours = bool(server or client)
        yield {"way": way, "what": "half round trip, idle, 64 octets"}, ours, lambda s=server, c=client: idle(s, c)
        for size, rate in ((64, 1_000), (1448, 10_000), (1448, 100_000), (1448, 300_000)):
            yield ({"way": way, "what": f"one way, {size} octets, {rate:,} a second"}, ours,
                   lambda s=server, c=client, size=size, rate=rate: paced(s, c, size, rate))


PARTS = {"calls": calls, "streams": streams, "lo": goodput, "veth": goodput, "delay": delay}
NEEDS = {"streams": ("iperf3", "redis-server", "redis-benchmark", "redis-cli")}

# What two builds are compared by, for each part: how a row has it, and whether less is better. Of delays the median
# alone, as the tails are the machine's.
RATES = {"Gb/s received": (lambda row: row["receive"]["octets"] * 8 / row["send"]["seconds"] / 1e9, False),
         "CPU, ns for an octet": (lambda row: (row["send"]["cpu"] + row["receive"]["cpu"]) * 1e9
                                  / row["receive"]["octets"], True)}
FIGURES = {
    "calls": {f"{name}, ns": (lambda row, name=name: row[name], True) for name in ("send", "recv", "poll", "epoll_wait")},
    "streams": {"iperf3, TCP, Gb/s": (lambda row: row["tcp_gbit"], False),
                "redis GET, requests a second": (lambda row: row["requests_per_second"], False)},
    "lo": RATES,
    "veth": RATES,
    "delay": {"p50, µs": (lambda row: row["p50"], True)},
}


def figures(part, row):
    """What is compared of a row; None where it has nothing."""
    try:
        return {name: value(row) for name, (value, _) in FIGURES[part].items()}
    except (KeyError, ZeroDivisionError):
        return None


@contextlib.contextmanager
def cases_of(rig, part):
    """The cases of a part, and what they need as long as they are taken."""
    missing = [program for program in NEEDS.get(part, ()) if not shutil.which(program)]
    if missing:
        print(f"{part}: skipped: there is no {', '.join(missing)}", file=sys.stderr)
        yield []
    elif part == "veth":
        with namespaces() as (address, within):
            yield list(goodput(rig, part, address, within))
    else:
        yield list(PARTS[part](rig))


def take_alone(cases, times):
    """The rows of every case, taken in turn so many times."""
    return [{**key, **take()} for _ in range(times) for key, _, take in cases]


def take_in_pairs(rig, part, cases, libraries, most):
    """The rows of the cases that the library has a part in, with each of two builds, pair after pair."""
    rows = []

    def measure(key, take, build, number):
        rig.library = libraries[build]
        row = {**key, "build": build, "pair": number, **take()}
        rows.append(row)
        return figures(part, row)
    for key, ours, take in cases:
        if ours:
            taken = new_pairs(part).take(lambda *turn, key=key, take=take: measure(key, take, *turn), most)
            print(*taken.lines(title(part, key)), sep="\n", file=sys.stderr, flush=True)
    return rows


def new_pairs(part):
    return pairs.Pairs(lower=[name for name, (_, lower) in FIGURES[part].items() if lower])


def title(part, key):
    what = f"{key['size']} octets" if "size" in key else key.get("what")
    return ", ".join(word for word in (part, what, key["way"]) if word)


def compared(data):
    """The pairs of a file by their title."""
    found = {}
    for part, rows in data.get("pairs", {}).items():
        for row in rows:
            taken = found.setdefault(title(part, row), new_pairs(part)).taken
            if not taken or row["build"] in taken[-1]:
                taken.append({})
            taken[-1][row["build"]] = figures(part, row)
    return found


def find_builds(args):
    """The libraries of both builds, and what the file says of them."""
    given = {pairs.THIS: Path(args.library), pairs.BESIDE: args.beside}
    loads = lambda library: ["env", f"LD_PRELOAD={library}", "true"]  # noqa: E731
    files = {name: pairs.find(path, LIBRARIES, loads) for name, path in given.items()}
    return files, {name: pairs.describe(file, given[name]) for name, file in files.items()}


def measure(args):
    page = Path(args.json)
    data = json.loads(page.read_text()) if page.exists() else {}
    uname = os.uname()
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    data["environment"] = {"kernel": uname.release, "cpu": model[1] if model else uname.machine,
                           "cores": os.cpu_count(), "time": time.strftime("%Y-%m-%d %H:%M %z")}
    libraries = None
    if args.beside:
        libraries, data["builds"] = find_builds(args)
        data["pairs"] = {}
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(args.library, folder)
        for part in args.parts or PARTS:
            begin = time.monotonic()
            with cases_of(rig, part) as cases:
                if libraries:
                    data["pairs"][part] = take_in_pairs(rig, part, cases, libraries, args.pairs)
                elif cases:
                    data[part] = take_alone(cases, args.times)
            print(f"{part}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
            page.write_text(json.dumps(data, indent=1) + "\n")
    slower = [name for name, taken in compared(data).items() if taken.slower()] if libraries else []
    if libraries:
        beside_table(data)
    return 1 if slower else 0


def beside_table(data):
    """Two builds beside each other."""
    print(f"{data['builds']}\n\n{pairs.HEAD}")
    for name, taken in compared(data).items():
        print(*taken.lines(name), sep="\n")
    print()


def medians(rows, keys, values):
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    for group, members in groups.items():
        found = [[value(member) for member in members if not member.get("refused")] for value in values]
        yield group, [statistics.median(each) if each else None for each in found]


def line(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def show(value, base=None, digits=2):
    if value is None:
        return "refused"
    ratio = f" ({value / base:.2f} x)" if base else ""
    return f"{value:.{digits}f}{ratio}"


def tables(data):
    print(f"{data['environment']}\n")
    if "pairs" in data:
        beside_table(data)
    if "calls" in data:
        names = ["send", "recv", "poll", "epoll_wait"]
        line("nanoseconds a call", *names)
        line(*["---"] * 5)
        values = [lambda row, name=name: row[name] for name in names]
        for (way,), found in medians(data["calls"], ["way"], values):
            line(way, *[show(value, digits=0) for value in found])
        print()
    if "streams" in data:
        line("", "iperf3, TCP, Gb/s", "redis GET, requests a second")
        line(*["---"] * 3)
        base = None
        values = [lambda row: row["tcp_gbit"], lambda row: row["requests_per_second"]]
        for (way,), found in medians(data["streams"], ["way"], values):
            line(way, *[show(value, base and base[at], 2 - 2 * at) for at, value in enumerate(found)])
            base = base or found
        print()
    for path in ("lo", "veth"):
        if path not in data:
            continue
        ways = list(WAYS)
        values = [value for value, _ in RATES.values()]
        found = {group: medians_ for group, medians_ in medians(data[path], ["size", "way"], values)}
        for at, title in enumerate(("Gb/s received", "CPU, ns for an octet received, both ends")):
            line(f"{path}: {title}", *ways)
            line(*["---"] * (1 + len(ways)))
            for size in SIZES[path]:
                base = found[size, "kernel"][at]
                line(f"{size} octets", *[show(found[size, way][at], base if way != "kernel" else None, 2 + at)
                                         for way in ways])
            print()
    if "delay" in data:
        names = ["p50", "p99", "p99.9", "jitter"]
        line("microseconds", "way", *names)
        line(*["---"] * 6)
        values = [lambda row, name=name: row.get(name, 0) for name in names]
        for (what, way), found in sorted(medians(data["delay"], ["what", "way"], values)):
            line(what, way, *[show(value, digits=1) if value else "" for value in found])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="?")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--json", help="where the raw figures go; parts that are there already are replaced")
    parser.add_argument("--times", type=int, default=5, help="how often each figure is taken (%(default)s)")
    parser.add_argument("--table", help="prints the tables of this file")
    pairs.options(parser, "the library")
    args = parser.parse_intermixed_args()
    if args.table:
        tables(json.loads(Path(args.table).read_text()))
    elif args.library and args.json and all(part in PARTS for part in args.parts):
        try:
            return measure(args)
        except pairs.NoBuild as reason:
            parser.error(str(reason))
    else:
        parser.error("say LIBRARY --json FILE, or --table FILE")
    return 0


if __name__ == "__main__":
    sys.exit(main())
