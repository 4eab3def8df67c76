#!/usr/bin/env python3
"""`weft bench --hosts` between machines that ssh and mpirun lead to.

    tests/hosts/run.py --weft FILE [--only REGEX]

The machines are network namespaces, each with an sshd of its own, at a bridge. Needs root, OpenSSH's server and client,
and Open MPI for its case. Closes with `N passed, N failed, N skipped`.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
import again  # noqa: E402
from counts import Counts  # noqa: E402
from network import Namespaces, ip  # noqa: E402
from process import Failed, Process  # noqa: E402

INSIDE = "--inside"
ADDRESSES = {"one": "10.9.2.1", "two": "10.9.2.2"}
BESIDE = "10.9.2.254"
BRIDGE = "weft-hosts"
PATIENCE = 60
# Of many rows the shortest, on the stack that needs nothing but the bench itself.
ROW = ("--only", "send-lat-64", "--stack", "raw-tcp", "-n", "2")
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def expect(what, is_so):
    if not is_so:
        raise Failed(f"not expected: {what}")


class Skip(Exception):
    """What a case needs is not there."""


class Bed:
    """Two machines with an sshd each, and how to get there."""

    def __init__(self, weft, work):
        self.weft, self.work = weft, work
        self.namespaces, self.machines, self.processes = Namespaces(), {}, []
        self.key, host_key = work / "key", work / "host-key"
        for key in (self.key, host_key):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("address", "add", f"{BESIDE}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for name, address in ADDRESSES.items():
            machine = self.machines[name] = self.namespaces.add(name)
            ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", machine.name)
            ip("link", "set", name, "master", BRIDGE, "up")
            machine.up("eth0", f"{address}/24")
            words = [*machine.enter, shutil.which("sshd", path="/usr/sbin:/usr/bin"), "-D", "-e", "-f", "/dev/null",
                     "-h", host_key, "-o", f"ListenAddress={address}", "-o", f"AuthorizedKeysFile={self.key}.pub",
                     "-o", "StrictModes=no", "-o", "PidFile=none", "-o", "UsePAM=no", "-o", "PermitRootLogin=yes"]
            sshd = Process([str(word) for word in words], dict(os.environ), work / f"sshd-{name}")
            self.processes.append(sshd)
            await_so(f"sshd of {name}", lambda: "listening" in (work / f"sshd-{name}.err").read_text())
        self.ssh = self.script("ssh", f"exec ssh -T -F /dev/null -i {self.key} -o BatchMode=yes "
                               "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "
                               "-o ServerAliveInterval=1 \"$@\"")

    def script(self, name, text):
        file = self.work / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
        return file

    def bench(self, shell, *words):
        """`weft bench` between the two by a remote shell: the process, and the folder where its record will be."""
        folder = self.work / f"record-{len(self.processes)}"
        argv = [self.weft, "bench", "--hosts", ",".join(ADDRESSES.values()), "--rsh", str(shell), "--weft", self.weft,
                "--output", str(folder), *ROW, *words]
        process = Process(argv, dict(os.environ), self.work / f"bench-{len(self.processes)}")
        self.processes.append(process)
        return process, folder

    def running(self, name):
        """What runs on a machine beside its sshd."""
        pids = subprocess.run(["ip", "netns", "pids", self.machines[name].name], capture_output=True, text=True)
        found = []
        for pid in pids.stdout.split():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] and b"sshd" not in words[0]:
                found.append(b" ".join(words).decode())
        return found

    def nothing_is_left(self):
        for name in ADDRESSES:
            await_so(f"nothing is left on {name}", lambda: not self.running(name))

    def close(self):
        for process in reversed(self.processes):
            process.stop()
        self.namespaces.close()
        subprocess.run(["ip", "link", "delete", BRIDGE], check=False)


def await_so(what, is_so):
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > deadline:
            raise Failed(f"not in {PATIENCE} s: {what}")
        time.sleep(0.02)


def finish(process):
    await_so("the bench ends", process.ended)
    return process.result()


def record(folder):
    return json.loads(next(folder.glob("*.json")).read_text())


def measures(bed, shell):
    """A row is measured between the two, its record has them, and they have nothing of it afterwards."""
    process, folder = bed.bench(shell)
    ended = finish(process)
    expect(ended, ended.status == 0)
    run = record(folder)
    hosts = run["paths"][0]["hosts"]
    expect(hosts, [host["address"] for host in hosts] == list(ADDRESSES.values()))
    expect(hosts, all(host["environment"]["kernel"] for host in hosts))
    for cell in run["rows"][0]["cells"]:
        expect(cell, len(cell["samples"]) == 2 and all("metrics" in sample for sample in cell["samples"]))
    bed.nothing_is_left()


@case
def by_ssh(bed):
    measures(bed, bed.ssh)


@case
def by_mpirun(bed):
    if not shutil.which("mpirun.openmpi"):
        raise Skip("Open MPI is not installed")
    # Which gets to the machines by ssh itself.
    measures(bed, bed.script("mpirun", f"exec mpirun.openmpi --allow-run-as-root --bind-to none --mca plm_rsh_agent "
                             f"{bed.ssh} -n 1 --host \"$@\""))


@case
def a_machine_that_vanishes(bed):
    """Its link goes down while it measures: cells say so, the bench ends, and nothing stays on either machine."""
    process, folder = bed.bench(bed.ssh, "--only", "socket-bulk-busy", "--stack", "tcp", "--seconds", "60")
    await_so("the client measures", lambda: any(ADDRESSES["one"] in words for words in bed.running("two")))
    ip("link", "set", "two", "down")
    ended = finish(process)
    ip("link", "set", "two", "up")
    expect(ended, f"{ADDRESSES['two']} is gone" in ended.output)
    cells = [cell for row in record(folder)["rows"] for cell in row["cells"]]
    expect(cells, any("failure" in sample for cell in cells for sample in cell["samples"]))
    bed.nothing_is_left()


def play(bed, name):
    try:
        CASES[name](bed)
        return "passed", ""
    except Skip as why:
        return "skipped", str(why)
    except (Failed, OSError) as failed:
        return "failed", f"{type(failed).__name__}: {failed}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", required=True, help="the command")
    parser.add_argument("--only", default="", help="cases whose name this finds")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    lacking = [program for program in ("sshd", "ssh", "ssh-keygen", "ip", "unshare")
               if not shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin")]
    if os.geteuid() != 0 or lacking:
        print(f"skipped all: {'sshd needs root' if os.geteuid() else 'not installed: ' + ', '.join(lacking)}")
        return Counts(skipped=len(CASES)).close()
    if not args.inside:
        # Not in a user namespace: sshd wants users beside root.
        words = ["unshare", "--net", "--mount", "--"]
        if subprocess.run([*words, "true"], capture_output=True).returncode:
            print("skipped all: no namespaces to be had")
            return Counts(skipped=len(CASES)).close()
        os.execvp(words[0], [*words, sys.executable, *sys.argv, INSIDE])
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    Path("/run/sshd").mkdir()
    ip("link", "set", "lo", "up")
    with tempfile.TemporaryDirectory() as work:
        bed = Bed(os.path.realpath(args.weft), Path(work))
        try:
            names = [name for name in CASES if re.search(args.only, name)]
            counts = again.play_each(names, lambda name: play(bed, name))
        finally:
            bed.close()
    return counts.close()


if __name__ == "__main__":
    sys.exit(main())
