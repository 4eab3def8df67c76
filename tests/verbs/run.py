#!/usr/bin/env python3
"""Builds the verbs conformance program and runs it on the Weft device.

    tests/verbs/run.py --weft TARGET/release/weft [--work FOLDER] [-- OPTION...]

What stands behind -- goes to the program (tests/verbs/README.md). The last line is `N passed, N failed, N skipped`.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def main():
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
        command = [arguments.weft, "run", "--", program, "--known", HERE / "known-failures.txt"]
        # What the engine says of connections that cases break on purpose goes to standard error.
        return subprocess.run(command + arguments.rest).returncode


if __name__ == "__main__":
    sys.exit(main())
