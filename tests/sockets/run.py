#!/usr/bin/env python3
"""Builds the sockets conformance program and runs it, in every way that is asked for, with the same expectations.

    tests/sockets/run.py --plain                      on the kernel's sockets, without anything between
    tests/sockets/run.py --hooks WEFT                 under `WEFT run`: hooks that change nothing, and `--udp gso`
    tests/sockets/run.py --hooks WEFT --modes always  every datagram gathered and every receive coalesced
    tests/sockets/run.py --plain --builds plain,fortified,sanitized --storm

Builds: plain; fortified (-O2, _FORTIFY_SOURCE=3, 64-bit file names); sanitized (address and undefined behaviour).
What stands behind -- goes to the program. The last line is `N passed, N failed, N skipped`, of all runs.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
from counts import Counts, of_cases  # noqa: E402

FLAGS = {
    "plain": [],
    "fortified": ["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3", "-D_FILE_OFFSET_BITS=64"],
    "sanitized": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"],
}
# A rule that names no socket of the program: the hooks are there and follow every descriptor, and change nothing.
MODES = {
    "pass": ["--udp", "gso port=1"],
    "gso": ["--udp", "gso"],
    "always": ["--udp", "gso", "--udp-busy-after", "0"],
}
# What is known to differ, and has to: a case here that passes is a failure, so that the list stays true.
DIFFERENT = {
    "always": {
        f"udp{version}.blocked-recv-goes-on-though-its-number-is-closed":
            "a wait for coalesced datagrams is a look at the queue; whose number is closed meanwhile is EBADF"
        for version in "46"
    },
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plain", action="store_true", help="on the kernel's sockets")
    parser.add_argument("--hooks", metavar="WEFT", type=pathlib.Path, help="under this built command")
    parser.add_argument("--modes", default="pass,gso", help=f"of {', '.join(MODES)}, with commas (pass,gso)")
    parser.add_argument("--builds", default="plain", help=f"of {', '.join(FLAGS)}, with commas (plain)")
    parser.add_argument("--storm", action="store_true", help="once more of each, under a storm of signals")
    parser.add_argument("--work", type=pathlib.Path, help="where the programs are built (a temporary folder)")
    parser.add_argument("rest", nargs="*", help="options of the program, behind --")
    arguments = parser.parse_args()
    builds = arguments.builds.split(",")
    unknown = [build for build in builds if build not in FLAGS]
    unknown += [mode for mode in arguments.modes.split(",") if mode not in MODES]
    if unknown or not (arguments.plain or arguments.hooks):
        parser.error(f"no such build or mode: {unknown[0]}" if unknown else "say --plain, --hooks WEFT or both")
    total = Counts()
    with tempfile.TemporaryDirectory() as scratch:
        work = (arguments.work or pathlib.Path(scratch)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        for build in builds:
            program = work / f"sockets-conformance-{build}"
            if subprocess.run([HERE / "build.sh", program, *FLAGS[build]]).returncode:
                print(f"FAIL build {build}: it does not compile (package gcc)")
                total.add("failed")
                continue
            for title, prefix, different in ways(arguments, build):
                # What fails by intention does so once.
                once_more = [] if different else ["--again"]
                command = [*prefix, program, *once_more, *arguments.rest]
                for storm in [[], ["--storm"]] if arguments.storm else [[]]:
                    total += of_cases(" ".join([title, *storm]), command + storm, different=different)
    return total.close()


def ways(arguments, build):
    """What stands in front of the program, with a name for it."""
    if arguments.plain:
        yield f"kernel, {build}", [], {}
    if arguments.hooks:
        # A preloaded library comes before the sanitizers' own, which would complain.
        loosened = ["env", "ASAN_OPTIONS=verify_asan_link_order=0"] if build == "sanitized" else []
        for mode in arguments.modes.split(","):
            command = [*loosened, arguments.hooks, "run", "--anyway", *MODES[mode], "--"]
            # A run of chosen cases may not contain those.
            yield f"hooks {mode}, {build}", command, {} if arguments.rest else DIFFERENT.get(mode, {})


if __name__ == "__main__":
    sys.exit(main())
