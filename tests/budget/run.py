#!/usr/bin/env python3
"""Instructions of the calls of the verbs that every message takes, counted by callgrind, against their budgets.

    tests/budget/run.py --weft FILE [--lower]

`budget.c` sends messages of 64 octets between two ends of its own, over TCP and over the memory that processes of one
machine share; `budgets.txt` has what each call may take. A count is the calling thread's, without the kernel's, and
does not depend on how busy a machine is; it does on the compiler, so that with another than the budgets' own none is
judged. More than a budget by a fiftieth is a failure; with --lower budgets of calls
that take less by as much are lowered. Closes with `N passed, N failed, N skipped`.
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
from counts import Counts  # noqa: E402

BUDGETS = HERE / "budgets.txt"
COMPILER = re.compile(r"rustc (?:version )?(\d+\.\d+\.\d+)")
# By name, what `weft run` is told.
CARRIERS = {"tcp": ["--same-host=off"], "memory": ["--same-host=auto"]}
# On a busy machine Weft's own thread would now and then do what the calling one is counted for: it looks as seldom as
# it may, and a run in which the calls together took less than they may is made again, so often at most.
ALONE = "--serve-tick-us=1000000"
RUNS_MAX = 8
# Two builds of one source by one compiler differ by less.
TOLERANCE = 0.02
# Seconds; callgrind is fifty times slower than the machine.
PATIENCE = 300


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", required=True, type=Path, help="the built command")
    parser.add_argument("--lower", action="store_true", help="lower the budgets of calls that take less")
    arguments = parser.parse_args()
    if not shutil.which("valgrind"):
        print("skipped: there is no valgrind")
        return Counts(skipped=1).close()
    budgets = BUDGETS.read_text()
    wanted, used = compiler(budgets), compiler((arguments.weft.parent / "libweft.so").read_bytes().decode("latin-1"))
    if wanted != used and not arguments.lower:
        print(f"skipped: the budgets are of rustc {wanted}, and the library was built by rustc {used}")
        return Counts(skipped=1).close()
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        program = work / "budget"
        compiled = subprocess.run(["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program,
                                   HERE / "budget.c", "-lrdmacm", "-libverbs"], check=False)
        if compiled.returncode:
            print("budget: the program does not compile (packages gcc, valgrind, libibverbs-dev, librdmacm-dev)")
            return 1
        budgets = read(budgets)
        counted = {}
        for carrier, options in CARRIERS.items():
            command = [arguments.weft.resolve(), "run", ALONE, *options, "--"]
            usual = sum(most for name, most in budgets.items() if name.startswith(f"{carrier} "))
            counted |= {f"{carrier} {call}": instructions
                        for call, instructions in whole(command, program, work / carrier, usual).items()}
    verdict = Counts()
    for name, instructions in counted.items():
        verdict += judge(name, instructions, budgets.get(name))
    for name in budgets.keys() - counted.keys():
        print(f"failed {name}: it has a budget and was not counted")
        verdict += Counts(failed=1)
    if arguments.lower:
        BUDGETS.write_text(lowered(BUDGETS.read_text(), counted))
    return verdict.close()


def compiler(text):
    """The version of the compiler that a text tells of first."""
    found = COMPILER.search(text)
    return found[1] if found else None


def whole(command, program, work, usual):
    """Instructions of a message by call, of the first run in which all together are as many as usual, or of the one
    with the most."""
    runs = []
    for number in range(RUNS_MAX):
        runs.append(count(command, program, work / str(number)))
        if sum(runs[-1].values()) >= usual * (1 - TOLERANCE):
            return runs[-1]
    return max(runs, key=lambda counted: sum(counted.values()))


def count(command, program, work):
    """Instructions of a message, by call."""
    work.mkdir(parents=True)
    valgrind = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--separate-threads=yes",
                f"--callgrind-out-file={work}/out"]
    done = subprocess.run([*command, *valgrind, program], capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        raise SystemExit(f"budget: the program fails, status {done.returncode}:\n{done.stderr[-2000:]}")
    said = [line.split() for line in done.stdout.splitlines()]
    totals = {}
    for file in work.glob("out*-01"):
        found = total_of(file.read_text())
        if found:
            totals[found[0]] = found[1]
    return {call: totals[call] / int(messages) for call, messages, _ in said}


def total_of(dump):
    """The name of a dump that the program asked for, and its instructions."""
    name = re.search(r"^desc: Trigger: Client Request: (\w+)$", dump, re.MULTILINE)
    total = re.search(r"^(?:totals|summary): (\d+)", dump, re.MULTILINE)
    return (name[1], int(total[1])) if name and total else None


def read(text):
    """Budgets by carrier and call."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {f"{carrier} {call}": int(most) for carrier, call, most in lines}


def judge(name, instructions, budget):
    """The verdict on a call, in words too."""
    if budget is None:
        print(f"failed {name}: {instructions:.0f} instructions, and it has no budget in {BUDGETS.name}")
        return Counts(failed=1)
    is_over = instructions > budget * (1 + TOLERANCE)
    advice = "; --lower lowers it" if instructions < budget * (1 - TOLERANCE) else ""
    print(f"{'failed' if is_over else 'passed'} {name}: {instructions:.0f} instructions of {budget}{advice}")
    return Counts(failed=1) if is_over else Counts(passed=1)


def lowered(text, counted):
    """The file of budgets with those lowered that have become too high, and those that are new."""
    known = read(text)
    lines = []
    for line in text.splitlines():
        name = " ".join(line.split()[:2])
        if name in counted and counted[name] < known.get(name, 0) * (1 - TOLERANCE):
            line = f"{name} {counted[name]:.0f}"
        lines.append(line)
    lines += [f"{name} {instructions:.0f}" for name, instructions in counted.items() if name not in known]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
