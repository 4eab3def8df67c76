#!/usr/bin/env python3
"""What the hooks cost, and what UDP segmentation offload gives, against the plain kernel in the same run.

    tests/datagrams/bench.py LIBRARY --json FILE [--times N] [PART...]     parts: calls streams lo veth delay (all)
    tests/datagrams/bench.py --table FILE...                   the tables of docs/sockets-bench.md, from such files

The sender has one core and the receiver another; the ways alternate within a run, and a figure is the median of the runs.
`veth` makes a pair of namespaces with an MTU of 1500 (privilege). A part takes up to 40 seconds for each of N (5) times.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
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
    def __init__(self, library, folder, times):
        self.times = times
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


def calls(rig):
    """Nanoseconds of a call, plain, with hooks and no rule, and with hooks that follow every descriptor."""
    rows = []
    for _ in range(rig.times):
        for way, rule in {"no preload": None, "hooks, no rule": "off", "hooks, pass": PASS, "gso": "gso"}.items():
            out, _ = rig.run(rule, rig.rate, "calls", 4_000_000)
            rows.append({"way": way, **numbers(out)})
    return rows


def streams(rig):
    """iperf3 over TCP and redis-benchmark, loopback, without and with the hooks at both ends."""
    rows = []
    for _ in range(rig.times):
        for way, rule in {"no preload": None, "hooks, pass": PASS}.items():
            rig.port += 1
            server = rig.start(rule, "iperf3", "-s", "-1", "-p", rig.port)
            time.sleep(0.3)
            out, _ = rig.run(rule, "iperf3", "-c", "127.0.0.1", "-p", rig.port, "-t", "2", "-J", core=1)
            server.communicate(timeout=10)
            gbit = json.loads(out)["end"]["sum_received"]["bits_per_second"] / 1e9
            rig.port += 1
            server = rig.start(rule, "redis-server", "--port", rig.port, "--save", "")
            time.sleep(0.4)
            out, _ = rig.run(rule, "redis-benchmark", "-p", rig.port, "-n", 150_000, "-c", 20, "-t", "get", "--csv",
                             core=1)
            rig.run(None, "redis-cli", "-p", rig.port, "shutdown", "nosave")
            server.communicate(timeout=10)
            rate = float(out.strip().splitlines()[-1].split(",")[1].strip('"'))
            rows.append({"way": way, "tcp_gbit": gbit, "requests_per_second": rate})
    return rows


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
        return None
    got, _ = receiver.communicate(timeout=20)
    return {"send": numbers(sent), "receive": numbers(got)}


def goodput(rig, path, address="127.0.0.1", within=((), ())):
    rows = []
    for _ in range(rig.times):
        for size in SIZES[path]:
            for way in WAYS:
                result = one(rig, way, size, address, within)
                rows.append({"path": path, "size": size, "way": way, **(result or {"refused": True})})
    return rows


def veth(rig):
    """The same between two namespaces, MTU 1500."""
    names = [f"weft-bench-{os.getpid()}-{side}" for side in "ab"]
    ip = lambda *words: subprocess.run(["ip", *words], check=True)  # noqa: E731
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "weftb0", "netns", names[0], "type", "veth", "peer", "name", "weftb1", "netns", names[1])
        for number, name in enumerate(names):
            ip("-n", name, "address", "add", f"10.213.0.{number + 1}/24", "dev", f"weftb{number}")
            ip("-n", name, "link", "set", f"weftb{number}", "up")
        within = [("ip", "netns", "exec", name) for name in names]
        return goodput(rig, "veth", "10.213.0.1", within)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def delay(rig):
    """One way delay and jitter of datagrams at a pace, and half a round trip of an idle program."""
    rows = []
    for _ in range(rig.times):
        for way in ("kernel", "weft", "weft, sender", "weft, receiver"):
            server, client, _ = WAYS[way]
            rig.port += 1
            receiver = rig.start(server, rig.rate, "answer", rig.port, core=0)
            time.sleep(0.15)
            out, _ = rig.run(client, rig.rate, "ask", "127.0.0.1", rig.port, 20_000, core=1)
            receiver.communicate(timeout=10)
            rows.append({"way": way, "what": "half round trip, idle, 64 octets", **numbers(out)})
            for size, rate in ((64, 1_000), (1448, 10_000), (1448, 100_000), (1448, 300_000)):
                rig.port += 1
                receiver = rig.start(server, rig.rate, "delay", rig.port, 1, core=0)
                time.sleep(0.15)
                rig.run(client, rig.rate, "pace", "127.0.0.1", rig.port, size, rate, 0.5, core=1)
                out, _ = receiver.communicate(timeout=20)
                rows.append({"way": way, "what": f"one way, {size} octets, {rate:,} a second", **numbers(out)})
    return rows


PARTS = {"calls": calls, "streams": streams, "lo": lambda rig: goodput(rig, "lo"), "veth": veth, "delay": delay}


def measure(args):
    page = Path(args.json)
    data = json.loads(page.read_text()) if page.exists() else {}
    uname = os.uname()
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    data["environment"] = {"kernel": uname.release, "cpu": model[1] if model else uname.machine,
                           "cores": os.cpu_count(), "time": time.strftime("%Y-%m-%d %H:%M %z")}
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(args.library, folder, args.times)
        for part in args.parts or PARTS:
            begin = time.monotonic()
            data[part] = PARTS[part](rig)
            print(f"{part}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    page.write_text(json.dumps(data, indent=1) + "\n")


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
        values = [lambda row: row["receive"]["octets"] * 8 / row["send"]["seconds"] / 1e9,
                  lambda row: (row["send"]["cpu"] + row["receive"]["cpu"]) * 1e9 / row["receive"]["octets"]]
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
    args = parser.parse_intermixed_args()
    if args.table:
        tables(json.loads(Path(args.table).read_text()))
    elif args.library and args.json and all(part in PARTS for part in args.parts):
        measure(args)
    else:
        parser.error("say LIBRARY --json FILE, or --table FILE")


if __name__ == "__main__":
    main()
