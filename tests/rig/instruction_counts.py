"""Instructions that two builds of Weft take for the same rows, compared: what a busy machine does not disturb."""

import json
import shutil
import statistics

import pairs

MOST = 1.02  # times the instructions of the build beside it


def valgrind_is_missing():
    """Says so, if it is."""
    if shutil.which("valgrind"):
        return False
    print("instructions: there is no valgrind (package valgrind)")
    return True


def keep(file, files, given, **rest):
    """Writes what was counted, and of which builds."""
    builds = [pairs.describe(name, files[name], given[name]) for name in given]
    file.write_text(json.dumps({"builds": builds, **rest}, indent=1) + "\n")


def report(counted):
    """Prints a table of `counted`: the runs of each build by row and stack. The exit status: 1 where a row takes more
    than `MOST` times the instructions, 2 where there is none."""
    if not counted:
        print("instructions: there is no such row")
        return 2
    print("| row | stack | instructions, this build | beside it | ratio |")
    print("| --- | --- | ---: | ---: | ---: |")
    more = 0
    for (row, stack), runs in counted.items():
        this, beside = (statistics.median(runs[build]) for build in (pairs.THIS, pairs.BESIDE))
        more += this > MOST * beside
        print(f"| {row} | {stack} | {this:,.0f} | {beside:,.0f} | {this / beside:.3f} |")
    print(f"\n{len(counted) - more} rows take no more than {MOST} times the instructions, {more} take more")
    return 1 if more else 0
