#!/usr/bin/env python3
"""Builds the rsockets conformance program and runs it over Weft, in every way of loading.

    tests/rsockets/run.py --weft TARGET/release/weft [--mode MODE] [--work FOLDER] [-- OPTION...]

    run           `weft run`: the socket hooks are in front of the program's ordinary calls as well
    preload       LD_PRELOAD=libweft.so, which opens the library with the hooks for the rsockets alone
    replacement   the same with LD_LIBRARY_PATH=weft-libs

With `weft run` a program of ordinary sockets runs under rdma-core's librspreload as well, which makes rsockets of them.

What stands behind -- goes to the program (tests/common/cases.h). The last line is `N passed, N failed, N skipped`, of
all runs.
"""
import argparse
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
from counts import Counts, of_cases  # noqa: E402

MODES = ("run", "preload", "replacement")
LIBRSPRELOAD = pathlib.Path("/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so.1")


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
        program = work.resolve() / "rsockets-conformance"
        if subprocess.run([HERE / "build.sh", program]).returncode:
            print("rsockets: the program does not compile (packages gcc, librdmacm-dev)")
            return 1
        total = Counts()
        for mode in arguments.mode or MODES:
            command, variables = loaded(mode, arguments.weft.resolve(), [program, "--again", *arguments.rest])
            total += of_cases(mode, command, variables)
        if "run" in (arguments.mode or MODES) and not arguments.rest:
            total.add(under_librspreload(arguments.weft.resolve(), work.resolve()))
    return total.close()


def under_librspreload(weft, work):
    """Whether a program of ordinary sockets runs over DDP where librspreload makes rsockets of them."""
    print("--- librspreload", flush=True)
    if not LIBRSPRELOAD.exists():
        print("skipped: there is no librspreload (package librdmacm1t64, or librdmacm1)")
        return "skipped"
    echo = work / "echo"
    source = HERE / "ordinary-program/echo.c"
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", echo, source], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    variables = os.environ | {"LD_PRELOAD": str(LIBRSPRELOAD), "WEFT_LOG": "info"}

    def end(*role):
        return subprocess.Popen([weft, "run", "--", echo, port, *role], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=variables)
    with end() as server:
        try:
            server.stdout.readline()
            with end("client") as client:
                output, errors = client.communicate(timeout=60)
                told = server.communicate(timeout=60)[1]
        except subprocess.TimeoutExpired:
            server.kill()
            client.kill()
            print("FAIL librspreload: it did not end")
            return "failed"
    good = client.returncode == server.returncode == 0 and "the same came back" in output
    if not good or "DDP on 1" not in errors or "DDP on 1" not in told:
        print(f"FAIL librspreload: {output}{errors}{told}")
        return "failed"
    return "passed"


def loaded(mode, weft, command):
    """The command that runs the program with the libraries loaded this way, and what it needs in its environment."""
    folder = weft.parent
    if mode == "run":
        return [weft, "run", "--", *command], {}
    if mode == "preload":
        return command, {"LD_PRELOAD": str(folder / "libweft.so")}
    return command, {"LD_LIBRARY_PATH": str(folder / "weft-libs")}


if __name__ == "__main__":
    sys.exit(main())
