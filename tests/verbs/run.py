#!/usr/bin/env python3
"""Builds the verbs conformance program and runs it on the Weft device.

    tests/verbs/run.py --weft TARGET/release/weft [--mode MODE] [--work FOLDER] [-- OPTION...]

Without --mode it runs in every way of loading (preload, replacement, both): under both, which is how `weft run` does it,
once for each face of the device, and on the one that has it by GID and QPN too; in the other ways on that face. What
stands behind -- goes to the program (tests/verbs/README.md). The last line is `N passed, N failed, N skipped`, of all
runs.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
from counts import Counts, of_cases  # noqa: E402

# The C library fills memory that was freed, so that what is used afterwards is not by chance as it was.
FILLED = {"GLIBC_TUNABLES": "glibc.malloc.perturb=165:glibc.malloc.tcache_count=0"}
MODES = ("preload", "replacement", "both")
# The faces of the device and ways to connect; options of the program and its list of known failures.
RUNS = (
    ("iwarp", [], "known-failures.txt"),
    ("infiniband", [], "known-failures-infiniband.txt"),
    ("infiniband", ["--by", "gid"], "known-failures-by-gid.txt"),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", required=True, type=pathlib.Path, help="the built command")
    parser.add_argument("--mode", choices=MODES, action="append", help="how the libraries are loaded (every way)")
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
        total = Counts()
        for mode in arguments.mode or MODES:
            for face, options, known in RUNS:
                if mode != "both" and (face, options) != ("infiniband", []):
                    continue
                title = " ".join([f"{mode}, face {face}", *options])
                command = [program, "--again", *options, "--known", HERE / known, *arguments.rest]
                command, variables = loaded(mode, arguments.weft.resolve(), face, command)
                total += of_cases(title, command, FILLED | variables)
    return total.close()


def loaded(mode, weft, face, command):
    """The command that runs the program with the libraries loaded this way, and what it needs in its environment."""
    if mode == "both":
        return [weft, "run", "--face", face, "--", *command], {}
    folder = weft.parent
    if mode == "preload":
        return command, {"WEFT_FACE": face, "LD_PRELOAD": str(folder / "libweft.so")}
    return command, {"WEFT_FACE": face, "LD_LIBRARY_PATH": str(folder / "weft-libs")}


if __name__ == "__main__":
    sys.exit(main())
