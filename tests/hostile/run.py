#!/usr/bin/env python3
"""Attacks real programs under Weft for a time, with honest traffic beside it of which every octet is looked at.

    tests/hostile/run.py [--weft PATH] [--seconds N] [--seed S] [--adapter]

A server (server.c) is attacked by strangers, by peers that hold a connection and by another user of its machine
(attackers.py), each kind from a network namespace of its own where this may be done (as root), while an honest client
(client.c) goes on. What has to hold is checked one by one; the closing line is `N passed, N failed, N skipped`. Its
latency with and without the attacks is printed. The same seed makes the same choices; what the machine makes of them
is its own. With an even seed the CRC is off. With `--adapter` the server has a TCP of Weft's own, at two interfaces;
its machine's kernel has no address there.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.append(str(ROOT / "tests/rig"))
from counts import Counts  # noqa: E402
from network import Namespaces, ip, may_have_namespaces  # noqa: E402
from process import ANSWER as PATIENCE, Failed, Talker  # noqa: E402

NOBODY = 65534
RECEIVES = 512  # that the server posts to its shared queue
SOURCES = 24  # addresses of the attackers
GROWTH = 32 << 20  # octets that the server's memory may grow by, from one time that nobody is connected to another
RING = 16 << 20  # octets of an adapter's receive ring at each interface, which frames come to one after the other
LIMIT = 2048  # descriptors that the server may have
# At the height of it: the server's own bound of 300 connections, those that wait for it, and Weft's quarter of the
# limit.
DESCRIPTORS = 900


class Machines:
    """The server's machine, the attackers' and the client's: network namespaces, or one loopback interface."""

    def __init__(self, alone, adapter):
        self.alone, self.adapter = alone, adapter
        self.namespaces = Namespaces()
        if alone:
            self.server = self.client = self.attackers = ()
            self.address, self.sources = "127.0.0.1", [f"127.0.7.{n}" for n in range(1, SOURCES)]
            self.attacked = self.address
            return
        try:
            server, client, attackers = (self.namespaces.add(name) for name in ("server", "client", "attackers"))
            self.server, self.client, self.attackers = server.enter, client.enter, attackers.enter
            self.address, self.sources = "10.77.1.1", [f"10.77.2.{n}" for n in range(2, SOURCES + 2)]
            self.join(server, client, "eth0", self.address, ["10.77.1.2"])
            self.join(server, attackers, "eth1", "10.77.2.1", self.sources)
            # An adapter answers at each interface for the addresses that it has there.
            self.attacked = "10.77.2.1" if adapter else self.address
            if not adapter:
                ip("-n", attackers.name, "route", "add", self.address, "via", "10.77.2.1")
        except OSError:
            self.close()
            raise

    def join(self, here, there, device, own, others):
        self.namespaces.join(here, there, device)
        here.up(device, *[f"{own}/24"] * (not self.adapter))
        there.up("eth0", *[f"{other}/24" for other in others])

    def words(self):
        """The words by which the server has its network, and the address that it listens at."""
        if not self.adapter:
            return [], self.address
        ends = (("eth0", self.address), ("eth1", self.attacked))
        words = [[f"--interface=packet:{device}", f"--address={address}/24"] for device, address in ends]
        return ["--adapter=inline", *sum(words, [])], "0.0.0.0"

    def close(self):
        self.namespaces.close()


class Looks:
    """What the server's process takes."""

    def __init__(self, pid):
        self.here = Path(f"/proc/{pid}")
        self.most = dict.fromkeys(("descriptors", "threads", "resident"), 0)

    def look(self):
        status = dict(line.split(":", 1) for line in (self.here / "status").read_text().splitlines())
        seen = {"descriptors": len(os.listdir(self.here / "fd")), "threads": int(status["Threads"]),
                "resident": int(status["VmRSS"].split()[0]) * 1024}
        self.most = {what: max(self.most[what], seen[what]) for what in seen}
        return seen


class Run:
    def __init__(self, options, work):
        self.options = options
        self.work = work
        self.counts = Counts()
        self.random = random.Random(options.seed)
        self.programs = []
        self.errors = {name: open(work / f"{name}.log", "w+", encoding="utf-8", errors="replace")
                       for name in ("server", "client", "near", "strangers", "peers", "local")}

    def check(self, name, condition, said=""):
        self.counts.add("passed" if condition else "failed")
        print(f"ok {name}" if condition else f"FAILED {name}: {said}", flush=True)

    def skip(self, name, reason):
        self.counts.add("skipped")
        print(f"skipped {name}: {reason}", flush=True)

    def start(self, name, words, **more):
        program = Talker(words, errors=self.errors[name], **more)
        self.programs.append(program)
        return program

    def build(self):
        for name in ("server", "client"):
            subprocess.run(["cc", "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE",
                            "-Wno-missing-field-initializers", HERE / f"{name}.c", "-o", self.work / name,
                            "-libverbs", "-lrdmacm"], check=True)

    def attackers(self, who, known, before, **more):
        words = [*before, sys.executable, HERE / "attackers.py", who, json.dumps(known)]
        return self.start(who, words, **more)

    def play(self, machines):
        # Without the CRC payload takes another way, straight to memory.
        crc = "on" if self.options.seed % 2 else "off"
        print(f"the CRC is {crc}")
        weft = [self.options.weft, "run", "--crc", crc, "--"]
        password, secret = (f"{self.random.getrandbits(64) | 1:016x}" for _ in range(2))
        network, at = machines.words()
        words = [*machines.server, *weft[:-1], *network, "--", self.work / "server", at, 0, password, secret]
        server = self.start("server", words, files=(LIMIT, LIMIT))
        known = server.hear()
        looks = Looks(server.pid)
        words = [*machines.client, *weft, self.work / "client", machines.address, known["port"], password]
        client = self.start("client", [*words, self.random.getrandbits(31)])
        seconds = self.options.seconds
        quiet = min(30.0, max(3.0, seconds / 5))
        before = client.ask(str(quiet), PATIENCE + quiet)
        name = "a client on the server's own machine is served"
        if machines.adapter:
            self.skip(name, "its kernel has no way to an adapter's addresses")
        else:
            # With the first of them the process opens a socket for all.
            words = [*machines.server, *weft, self.work / "client", machines.address, known["port"], password]
            near = self.start("near", [*words, self.random.getrandbits(31)]).ask("1", PATIENCE + 1)
            self.check(name, near["trips"] > 0 and near["wrong"] == 0, near)
        start = self.at_rest(server, looks)
        known |= {"address": machines.attacked, "sources": machines.sources, "seed": self.options.seed,
                  "seconds": seconds, "secret": secret, "pid": server.pid}
        # The honest client is at it before they come and after they have gone.
        client.tell(str(seconds + 4))
        time.sleep(2)
        crowd = {who: self.attackers(who, known, machines.attackers) for who in ("strangers", "peers")}
        local = os.geteuid() == 0 and not machines.adapter
        if local:
            become = [shutil.which("setpriv"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            crowd["local"] = self.attackers("local", known, [*machines.server, *become])
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            looks.look()
            time.sleep(0.25)
        during = client.hear(4 * PATIENCE)
        told = {who: program.hear(4 * PATIENCE) for who, program in crowd.items()}
        after = self.at_rest(server, looks, start)
        # Each message takes the receive that has been there for longest: so many messages take each of them.
        server.ask("mark")
        trips = 0
        while trips < 2 * RECEIVES:
            trips += client.ask("1")["trips"]
        self.judge(machines, before, during, told, start, after, looks, server.ask("counts"))
        if not local:
            why = "an adapter is no way for them" if machines.adapter else "this needs root"
            self.skip("another user of the machine", why)

    def at_rest(self, server, looks, like=None):
        """What the server takes when nobody is connected any more; the least of some looks, as it comes to that."""
        deadline = time.monotonic() + PATIENCE
        while True:
            seen = looks.look()
            alone = server.ask("counts")["connections"] == 0
            if alone and (like is None or seen["descriptors"] <= like["descriptors"]):
                return seen
            if time.monotonic() > deadline:
                return seen
            time.sleep(0.1)

    def judge(self, machines, before, during, told, start, after, looks, counts):
        findings = ("leaks", "opened", "stuck", "wrong_reads")
        attacks = {who: {kind: n for kind, n in counted.items() if kind not in findings}
                   for who, counted in told.items()}
        for who, kinds in attacks.items():
            print(f"{who}: " + ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items())))
        print(f"the server: {counts}")
        for name, one in (("without attacks", before), ("with attacks", during)):
            print(f"{name}: {one['trips']} round trips, p50 {one['p50_us']} us, p99 {one['p99_us']} us, "
                  f"most {one['most_us']} us; {one['connects']} connects and {one['failed']} that failed, "
                  f"p50 {one['connect_p50_us']} us, p99 {one['connect_p99_us']} us, most {one['connect_most_us']} us")
        print(f"at rest before {start}")
        print(f"at rest after {after}, at most {looks.most}", flush=True)
        unmade = [kind for kinds in attacks.values() for kind, n in kinds.items() if n == 0 and kind != "ended"]
        self.check("every kind of attack was made", not unmade or self.options.seconds < 15, unmade)
        wrong = before["wrong"] + during["wrong"] + counts["wrong"]
        self.check("every octet of the honest traffic was right", wrong == 0, f"{before}, {during}, {counts}")
        self.check("no honest connection was lost", during["lost"] == 0, f"{during['lost']} lost")
        if machines.alone:
            self.skip("no honest connect failed", "here its address is that of those who guess, and it waits with them")
        else:
            self.check("no honest connect failed", during["failed"] == 0, f"{during['failed']} failed")
        self.check("honest traffic went on", during["trips"] > 0 and during["connects"] > 0, during)
        damaged = counts["damaged"]
        self.check("memory that no peer was given is as it was", damaged == 0, f"{damaged} words changed")
        leaks = sum(counted.get("leaks", 0) for counted in told.values())
        self.check("nobody was sent what was not for him", leaks == 0, f"{leaks} times")
        wrong = sum(counted.get("wrong_reads", 0) for counted in told.values())
        self.check("a peer that behaves reads what it wrote", wrong == 0, f"{wrong} times not")
        self.check("no datagram of a stranger was delivered", counts["datagrams"] == 0, counts["datagrams"])
        stuck = {who: counted["stuck"] for who, counted in told.items() if counted["stuck"]}
        self.check("no attacker is kept for ever", not stuck, stuck)
        if "local" in told:
            self.check("another user opens nothing of the process", told["local"].get("opened", 0) == 0, told["local"])
        lost = RECEIVES - counts["receives"]
        self.check("no receive of the shared queue was lost", lost == 0, f"{lost} of {RECEIVES}")
        self.check("all connections are over", counts["connections"] == 0, f"{counts['connections']} are left")
        grown = after["descriptors"] > start["descriptors"]
        self.check("descriptors are given back", not grown, f"{start} and then {after}")
        self.check("descriptors are bounded", looks.most["descriptors"] <= DESCRIPTORS, looks.most)
        self.check("there are no more threads", looks.most["threads"] <= start["threads"], looks.most)
        rings = 2 * RING if machines.adapter else 0
        grown = after["resident"] > start["resident"] + GROWTH + rings
        self.check("memory is bounded", not grown, f"{start} and then {after}")

    def close(self):
        for program in self.programs:
            program.kill()
        if self.counts.failed:
            for name, file in self.errors.items():
                lines = Path(file.name).read_text(encoding="utf-8", errors="replace").splitlines()
                print("".join(f"    {name}: {line}\n" for line in lines[-8:]), end="")
        for file in self.errors.values():
            file.close()


def options_given():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", type=Path, default=ROOT / "target/release/weft", help="the command under test")
    parser.add_argument("--seconds", type=float, default=20, help="of attacks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--adapter", action="store_true", help="the server has a TCP of Weft's own")
    return parser.parse_args()


def main():
    options = options_given()
    options.weft = options.weft.resolve()
    print(f"hostile: seed {options.seed}, {options.seconds:.0f} s", flush=True)
    apart = may_have_namespaces()
    machines = None
    with tempfile.TemporaryDirectory() as work:
        os.chmod(work, 0o755)
        run = Run(options, Path(work))
        try:
            run.build()
            if not apart:
                run.skip("attackers and client on machines of their own", "network namespaces need root and `ip`")
            if apart or not options.adapter:
                machines = Machines(alone=not apart, adapter=options.adapter)
                run.play(machines)
        except (Failed, subprocess.CalledProcessError, OSError, KeyError, ValueError) as failure:
            run.check("the run", False, failure)
        finally:
            run.close()
            if machines:
                machines.close()
    return run.counts.close()


if __name__ == "__main__":
    sys.exit(main())
