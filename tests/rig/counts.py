"""The closing line of a runner, `N passed, N failed, N skipped`: what scripts/test adds up."""

import os
import re
import subprocess
from dataclasses import dataclass

LINE = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")
FAILED = re.compile(r"FAIL ([^ :]+)")


@dataclass
class Counts:
    """How many cases of a run passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, outcome):
        """Counts one case, which `passed`, `failed` or was `skipped`."""
        setattr(self, outcome, getattr(self, outcome) + 1)

    @staticmethod
    def of(outcomes):
        """The counts of many cases."""
        counts = Counts()
        for outcome in outcomes:
            counts.add(outcome)
        return counts

    def __add__(self, other):
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    def close(self):
        """Prints the closing line; the exit status."""
        print(self, flush=True)
        return 1 if self.failed else 0


def read(line):
    """The counts that a closing line tells; None for any other line."""
    found = LINE.match(line)
    return Counts(*map(int, found.groups())) if found else None


def of_cases(title, command, variables=None, different=None):
    """Runs a program of C cases (tests/common) and gives its counts; its lines are passed on, but for the closing one
    and what went well.

    `variables` are added to the environment. `different` names cases that fail by intention, with the reason: such a
    failure is a skip, and one that passes is a failure, so that the list stays true."""
    different = different or {}
    missing = dict(different)
    counts = None
    print(f"--- {title}", flush=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | (variables or {})) as process:
        for line in process.stdout:
            failed = FAILED.match(line)
            if told := read(line):
                counts = told
            elif failed and failed[1] in different:
                print(f"skipped {failed[1]} ({title}): {missing.pop(failed[1], '')}", flush=True)
            elif not line.startswith(("ok ", "skip ")):
                print(line, end="", flush=True)
    if counts is None or (process.returncode and not counts.failed):
        print(f"FAIL {title}: exit status {process.returncode} without a failure counted")
        counts = (counts or Counts()) + Counts(failed=1)
    known = len(different) - len(missing)
    counts += Counts(failed=-known, skipped=known)
    for case in missing:
        print(f"FAIL {case} ({title}): it does not differ any more")
        counts.add("failed")
    print(f"{title}: {counts}", flush=True)
    return counts
