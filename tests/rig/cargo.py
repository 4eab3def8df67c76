#!/usr/bin/env python3
"""Runs cargo's tests of the whole workspace; those on the machine that fail run once more, alone.

    tests/rig/cargo.py [--pure | --machine] [CARGO OPTION...]

The tests of a crate in PURE use no threads, sockets or clocks: what fails there fails. A failed test of another crate
runs again by itself, in its crate's folder; if it passes then, a line `flaky CRATE NAME: WHY` says so. So does a test
that hangs: an executable that says nothing for too long is killed, and what it did not finish runs again. `--pure` runs
only the first, and the examples in documentation, `--machine` only the second. The last line is
`N passed, N failed, N skipped`.
"""

import json
import os
import re
import select
import signal
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
# The harness says so once of a test, and then waits for it as long as it takes.
LONG = re.compile(r"^test (\S+) has been running for over \d+ seconds$")
FINISHED = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (?:ok|FAILED|ignored)")
LIMIT = 300  # seconds for a test that runs again
SILENCE = 300  # seconds within which a test executable says something
PARTS = ("--pure", "--machine")


@dataclass
class Binary:
    """The tests of one target, as cargo ran them."""

    title: str  # the path of the executable, or the crate of documentation tests
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    ended: bool = False  # it told its counts
    is_silent: bool = False  # it said nothing for so long that it was killed
    failures: dict = field(default_factory=dict)  # the reason by the test's name
    finished: set = field(default_factory=set)  # the names of tests
    long: list = field(default_factory=list)  # the names of tests that the harness says take long

    def take(self, lines):
        """Reads what the binary printed."""
        speaking, listing = None, False
        for line in lines:
            if finished := FINISHED.match(line):
                self.finished.add(finished[1])
            if result := RESULT.match(line):
                self.passed, self.failed, self.skipped = map(int, result.groups())
                self.ended = True
            elif failed := FAILED.match(line):
                self.failures.setdefault(failed[1], "")
            elif long := LONG.match(line):
                self.long.append(long[1])
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


def lines_of(command, folder=None, environment=None, silence=None, group=None):
    """Runs a command and passes on what it prints, but for counts, which are added up later; its lines and status, the
    status None where it was killed because it said nothing for `silence` seconds. `group`: 0 for a process group of its
    own, which is killed as a whole."""
    lines, is_silent = [], False
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, process_group=group) as process:
        try:
            for line in spoken(process.stdout.fileno(), silence):
                if line is None:
                    is_silent = True
                    print(f"error: it has said nothing for {silence} s; what its processes wait for:", flush=True)
                    print(*whereabouts(os.getpgid(process.pid)), sep="\n", flush=True)
                    break
                lines.append(line)
                if not RESULT.match(line):
                    print(line, flush=True)
        finally:
            # What it has started goes with it, and with this process.
            if is_silent or process.poll() is None and sys.exc_info()[0]:
                if group is None:
                    process.kill()
                else:
                    os.killpg(process.pid, signal.SIGKILL)
    return lines, None if is_silent else process.returncode


def spoken(source, silence):
    """The lines that come from a descriptor; None, as the last one, where nothing comes for `silence` seconds."""
    rest = b""
    while select.select([source], [], [], silence)[0]:
        octets = os.read(source, 1 << 16)
        if not octets:
            break
        *lines, rest = (rest + octets).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
    else:
        yield None
        return
    if rest:
        yield rest.decode(errors="replace")


def whereabouts(group):
    """A line for each thread of a process group: its process, its name and where in the kernel it waits."""
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda folder: int(folder.name)):
        try:
            if int((folder / "stat").read_text().rpartition(")")[2].split()[2]) != group:
                continue
            for thread in sorted((folder / "task").iterdir()):
                name, place = ((thread / what).read_text().strip() for what in ("comm", "wchan"))
                yield f"    {folder.name} {thread.name} {name}: {place}"
        except (OSError, IndexError, ValueError):
            continue  # it has ended meanwhile


def run_executable(path, crate, folder):
    """Runs the tests of one executable as cargo does: in the crate's folder."""
    begin = time.monotonic()
    print(f"     Running {path}", flush=True)
    binary = Binary(str(path))
    # What runs beside other stages stays in the one process group that can be stopped: it is pure, and starts nothing.
    lines, status = lines_of([path], folder, os.environ | {"CARGO_MANIFEST_DIR": str(folder)}, SILENCE,
                             group=None if crate in PURE else 0)
    binary.take(mended(lines))
    binary.is_silent = status is None
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
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", process_group=0) as process:
        try:
            said, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            print(f"it did not end within {LIMIT} s; what its processes wait for:")
            print(*whereabouts(process.pid), sep="\n")
            return False
        finally:
            # What it has started goes with it, and with this process.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    counts = RESULT.search(said)
    if process.returncode == 0 and counts and int(counts[1]) > 0:
        return True
    print(textwrap.indent(said, "    | "))
    return False


def settle(binary, crate, folder):
    """Runs again what failed in a crate whose tests are on the machine, and puts the counts right."""
    path = Path(binary.title).resolve()
    if binary.is_silent:
        settle_hung(binary, crate, path, folder)
    elif not binary.ended:
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


def settle_hung(binary, crate, path, folder):
    """Runs what an executable that was killed for its silence has not finished, and counts what it has."""
    binary.passed, binary.failed = len(binary.finished - set(binary.failures)), len(binary.failures)
    unfinished = [name for name in names(path) if name not in binary.finished]
    if passes([path, "--test-threads", "1", "--exact", *unfinished], folder):
        hung = [name for name in binary.long if name in unfinished]
        again.say(f"{crate} {' '.join(hung) or path.stem}", f"it hung: nothing was said for {SILENCE} s")
        binary.passed += len(unfinished)
        binary.ended = True


def names(path):
    """The names of an executable's tests."""
    told = subprocess.run([path, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [line.removesuffix(": test") for line in told.splitlines() if line.endswith(": test")]


def main():
    # With the exception, what runs is ended as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
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
