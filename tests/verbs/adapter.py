#!/usr/bin/env python3
"""Runs the verbs conformance program over inline adapters: both ends of each case on a TCP of Weft's own.

    tests/verbs/adapter.py --weft TARGET/release/weft [--work FOLDER] [-- OPTION...]

The interface is a veth's end in a network namespace, where the kernel has no address; a program that connects to its own
adapter is served inside (docs/adapter.md). It runs once for each face of the device, and by GID and QPN. Needs no
privilege but user namespaces; where there are none it is skipped. What stands behind -- goes to the program. The last
line is `N passed, N failed, N skipped`, of all runs.
"""
import argparse
import concurrent.futures
import contextlib
import io
import itertools
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
from counts import Counts, of_cases  # noqa: E402
from network import Namespaces, enter  # noqa: E402
from run import FILLED, RUNS  # noqa: E402

INSIDE = "--inside"
# One process at a time has an adapter's addresses: no forked child, no second program.
WITHOUT = r"^fork\.|^disconnect\.the-other-process-dies$"
# Cases by name, about half of them each: they wait more than they work, and run at once at addresses of their own.
PARTS = ("^[a-l]", "^[m-z]")


def main():
    if INSIDE not in sys.argv:
        why_not = enter(INSIDE)
        print(f"skipped: {why_not}")
        return Counts(skipped=1).close()
    sys.argv.remove(INSIDE)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", required=True, type=pathlib.Path, help="the built command")
    parser.add_argument("--work", type=pathlib.Path, help="where the program is built (a temporary folder)")
    parser.add_argument("rest", nargs="*", help="options of the program, behind --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = arguments.work or pathlib.Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        program = work.resolve() / "verbs-conformance"
        if subprocess.run([HERE / "build.sh", program]).returncode:
            print("verbs: the program does not compile (packages gcc, libibverbs-dev, librdmacm-dev)")
            return 1
        # Where `ip` keeps the names of namespaces; the run's own, as its root is not the machine's.
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
        namespaces = Namespaces()
        try:
            return over_adapters(namespaces, arguments.weft.resolve(), program, arguments.rest).close()
        finally:
            namespaces.close()


def over_adapters(namespaces, weft, program, rest):
    """Each way of the device over an adapter; the counts of all."""
    here, there = namespaces.add("here"), namespaces.add("there")
    namespaces.join(here, there)
    here.up("eth0")
    there.up("eth0")
    runs = []
    for number, ((face, options, known), cases) in enumerate(itertools.product(RUNS, PARTS), 1):
        title = " ".join(["adapter, face", face, *options, cases])
        address, address6 = f"10.1.0.{number}", f"fd01::{number}"
        adapter = ["--adapter=inline", "--interface=packet:eth0", f"--address={address}/24", f"--address={address6}/64"]
        # A case is a process, and one process at a time has the addresses.
        options = [*options, "--width=1", "--only", cases, "--without", WITHOUT, "-a", address, "-6", address6,
                   "--known", HERE / known, *rest]
        command = [*here.enter, weft, "run", f"--face={face}", *adapter, "--", program, "--again", *options]
        runs.append((title, command))
    total = Counts()
    with concurrent.futures.ProcessPoolExecutor(len(runs)) as pool:
        for said, counts in pool.map(in_words, *zip(*runs)):
            print(said, end="", flush=True)
            total += counts
    return total


def in_words(title, command):
    """One run: what it says, and its counts."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        counts = of_cases(title, command, FILLED)
    return said.getvalue(), counts


if __name__ == "__main__":
    sys.exit(main())
