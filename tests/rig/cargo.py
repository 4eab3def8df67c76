#!/usr/bin/env python3
"""Runs cargo's tests of the whole workspace; those on the machine that fail run once more, alone.

    tests/rig/cargo.py [--pure | --machine] [CARGO OPTION...]

The tests of a crate in PURE use no threads, sockets or clocks: what fails there fails. A failed test of another crate
runs again by itself, in its crate's folder; if it passes then, a line `flaky CRATE NAME: WHY` says so. `--pure` runs
only the first, and the examples in documentation, `--machine` only the second. The last line is
`N passed, N failed, N skipped`.
"""

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path

import again
from counts import Counts

PURE = {"weft-iwarp", "weft-verbs", "weft-inet", "weft-stream", "weft-uoe", "weft-discovery-proto", "weft-link", "weft-simulation", "weft-loom", "xtask"}
BEGIN = re.compile(r"^ +(?:Running .*\((?P<path>.+)\)|Doc-tests (?P<crate>\S+))$")
FAILED = re.compile(r"^test (.+?)(?: - should panic)? \.\.\. FAILED$")
# The list at the end has the name of each failed test, also where a child wrote into the test's own line.
LISTED = re.compile(r"^    (\S+)$")
RESULT = re.compile(r"^test result: \S+ (\d+) passed; (\d+) failed; (\d+) ignored;", re.MULTILINE)
# What a test's thread logs to stderr may come while the harness is within a line of its own on stdout.
INTERRUPTED = re.compile(r"^(test (?:.+ \.\.\. |result: ?\S*))(weft: (?:error|warn|info|debug): .*)$")
OUTPUT = re.compile(r"^---- (.+) stdout ----$")
LIMIT = 300  # seconds for a test that runs again
PARTS = ("--pure", "--machine")


@dataclass
class Binary:
    """The tests of one target, as cargo ran them."""

    title: str  # the path of the executable, or the crate of documentation tests
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    ended: bool = False  # it told its counts
    failures: dict = field(default_factory=dict)  # the reason by the test's name

    def take(self, lines):
        """Reads what the binary printed."""
        speaking, listing = None, False
        for line in lines:
            if result := RESULT.match(line):
                self.passed, self.failed, self.skipped = map(int, result.groups())
                self.ended = True
            elif failed := FAILED.match(line):
                self.failures.setdefault(failed[1], "")
            elif output := OUTPUT.match(line):
                speaking, listing = output[1].removesuffix(" - should panic"), False
                self.failures.setdefault(speaking, "")
            elif line == "failures:":
                speaking, listing = None, True
            elif listing and (listed := LISTED.match(line)):
                self.failures.setdefault(listed[1], "")
            elif speaking and line.strip() and not line.startswith("note: "):
                self.failures[speaking] = f"{self.failures[speaking]} {line}".strip()


def mended(lines):
    """The lines of a run, with those put together again that a line of the log stands in the middle of."""
    begun = ""
    for line in lines:
        interrupted = INTERRUPTED.match(line)
        if interrupted and not line.startswith("weft: "):
            begun += interrupted[1]
            yield interrupted[2]
        elif begun and not line.startswith("weft: "):
            yield begun + line
            begun = ""
        else:
            yield line
    if begun:
        yield begun


def read(lines):
    """The binaries of a run of `cargo test`, in its order."""
    parts = []
    for line in mended(lines):
        if begin := BEGIN.match(line):
            parts.append((Binary(begin["path"] or begin["crate"]), []))
        elif parts:
            parts[-1][1].append(line)
    for binary, printed in parts:
        binary.take(printed)
    return [binary for binary, _ in parts]


def executables(options):
    """The crate and its folder of each test executable, by the executable's path; None where something does not compile."""
    listed = subprocess.run(["cargo", "test", "--workspace", "--no-run", "--message-format=json", *options],
                            stdout=subprocess.PIPE, text=True, check=False)
    if listed.returncode:
        return None
    found = {}
    for message in map(json.loads, listed.stdout.splitlines()):
        # Programs and examples are built as well, which are no tests.
        if message.get("executable") and message["profile"]["test"]:
            manifest = Path(message["manifest_path"])
            crate = re.search(r'^name *= *"(.+?)"', manifest.read_text(encoding="utf-8"), re.MULTILINE)[1]
            found[Path(message["executable"]).resolve()] = crate, manifest.parent
    return found


def lines_of(command, folder=None, environment=None):
    """Runs a command and passes on what it prints, but for counts, which are added up later; its lines and status."""
    lines = []
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace") as process:
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if not RESULT.match(line):
                print(line, end="", flush=True)
    return lines, process.returncode


def run_executable(path, crate, folder):
    """Runs the tests of one executable as cargo does: in the crate's folder."""
    begin = time.monotonic()
    print(f"     Running {path}", flush=True)
    binary = Binary(str(path))
    lines, status = lines_of([path], folder, os.environ | {"CARGO_MANIFEST_DIR": str(folder)})
    binary.take(mended(lines))
    # A status that no test stands for: it died after its counts.
    binary.ended &= status == 0 or bool(binary.failures)
    if crate not in PURE:
        settle(binary, crate, folder)
    print(f"{crate} {path.stem}: {time.monotonic() - begin:.1f} s", flush=True)
    return binary


def run_examples(options):
    """Runs the examples in documentation; their counts by crate."""
    lines, status = lines_of(["cargo", "test", "--workspace", "--doc", "--no-fail-fast", *options])
    binaries = read(lines)
    if status and not any(binary.failures or not binary.ended for binary in binaries):
        binaries.append(Binary(f"cargo test --doc, exit status {status}"))
    return binaries


def passes(command, folder):
    """Whether a test passes by itself; shows what it says if not."""
    print("once more, alone:", *command, flush=True)
    try:
        done = subprocess.run(command, cwd=folder, timeout=LIMIT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", check=False)
    except subprocess.TimeoutExpired:
        print(f"it did not end within {LIMIT} s")
        return False
    counts = RESULT.search(done.stdout)
    if done.returncode == 0 and counts and int(counts[1]) > 0:
        return True
    print(textwrap.indent(done.stdout, "    | "))
    return False


def settle(binary, crate, folder):
    """Runs again what failed in a crate whose tests are on the machine, and puts the counts right."""
    path = Path(binary.title).resolve()
    if not binary.ended:
        # It died midway, and which of its tests did not run is not known: all of them.
        if passes([path, "--test-threads", "1"], folder):
            again.say(f"{crate} {path.stem}", "all its tests: it died midway")
            binary.passed, binary.ended = 1, True
        return
    for name, why in binary.failures.items():
        if passes([path, "--exact", name], folder):
            again.say(f"{crate} {name}", why)
            binary.passed += 1
            binary.failed -= 1
        else:
            print(f"FAILED {crate} {name}")


def main():
    parts = [word for word in sys.argv[1:] if word in PARTS] or PARTS
    options = [word for word in sys.argv[1:] if word not in PARTS]
    known = executables(options)
    if known is None:
        print("error: the tests do not compile")
        return Counts(failed=1).close()
    binaries = [run_executable(path, crate, folder) for path, (crate, folder) in known.items()
                if ("--pure" if crate in PURE else "--machine") in parts]
    if "--pure" in parts:
        binaries += run_examples(options)
    for binary in binaries:
        if not binary.ended:
            print(f"FAILED {binary.title}: it ended without its counts")
            binary.failed = 1
    return sum((Counts(one.passed, one.failed, one.skipped) for one in binaries), Counts()).close()


if __name__ == "__main__":
    sys.exit(main())
