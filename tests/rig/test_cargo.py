#!/usr/bin/env python3
"""What cargo's tests say is read, and one that hangs runs again, shown with scripts that play a test executable."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import cargo

RIG = Path(__file__).resolve().parent
# Plays the harness with three tests, of which one hangs as often as the file beside it has lines.
HARNESS = """#!/usr/bin/env python3
import os, sys, subprocess
from pathlib import Path
tests, here = ["one", "two", "three"], Path(sys.argv[0]).resolve()
if "--list" in sys.argv:
    print(*(f"{name}: test" for name in tests), "3 tests, 0 benchmarks", sep="\\n")
    sys.exit()
hangs = here.with_suffix(".hangs").read_text().splitlines()
wanted = [name for name in tests if name in sys.argv or "--exact" not in sys.argv]
for name in wanted:
    if name == "two" and hangs:
        here.with_suffix(".hangs").write_text("\\n".join(hangs[1:]))
        print("test two has been running for over 60 seconds", flush=True)
        child = subprocess.Popen(["sleep", "600"])
        here.with_suffix(".child").write_text(str(child.pid))
        child.wait()
    print(f"test {name} ... ok", flush=True)
print(f"test result: ok. {len(wanted)} passed; 0 failed; 0 ignored; 0 measured")
"""


def is_there(pid):
    """Whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Hanging(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.harness = self.folder / "harness"
        self.harness.write_text(HARNESS)
        self.harness.chmod(0o755)
        self.says = io.StringIO()

    def run_harness(self, crate, hangs):
        """Runs it as a crate's, where a test hangs so many times."""
        (self.folder / "harness.hangs").write_text("\n".join(["once"] * hangs))
        with mock.patch.multiple(cargo, SILENCE=2, LIMIT=2), contextlib.redirect_stdout(self.says):
            return cargo.run_executable(self.harness, crate, self.folder)

    def await_end_of_child(self):
        child = int((self.folder / "harness.child").read_text())
        until = time.monotonic() + 30
        while is_there(child):
            self.assertLess(time.monotonic(), until, "what it started is still there")
            time.sleep(0.05)

    def test_one_that_does_not_hang_is_read(self):
        binary = self.run_harness("weft-engine", 0)
        self.assertEqual((binary.passed, binary.failed, binary.ended), (3, 0, True))
        self.assertNotIn("flaky", self.says.getvalue())

    def test_one_that_hangs_once_is_flaky_by_name(self):
        binary = self.run_harness("weft-engine", 1)
        self.assertEqual((binary.passed, binary.failed, binary.ended), (3, 0, True))
        said = self.says.getvalue()
        self.assertIn("flaky weft-engine two: it hung", said)
        self.assertIn("sleep: ", said, "each process is told of, with where it waits")
        self.await_end_of_child()

    def test_one_that_hangs_again_has_failed(self):
        binary = self.run_harness("weft-engine", 2)
        self.assertFalse(binary.ended)
        self.assertNotIn("flaky", self.says.getvalue())
        self.await_end_of_child()

    def test_a_pure_one_is_not_run_again(self):
        self.assertFalse(self.run_harness("weft-iwarp", 1).ended)
        self.assertNotIn("once more", self.says.getvalue())
        # It is in the runner's own process group, and its child, which a pure test has none of, was not killed.
        os.kill(int((self.folder / "harness.child").read_text()), signal.SIGKILL)

    def test_what_runs_goes_with_the_runner(self):
        (self.folder / "harness.hangs").write_text("once")
        code = "import cargo, signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(1));"
        code += f"cargo.lines_of([{str(self.harness)!r}], group=0)"
        runner = subprocess.Popen([sys.executable, "-c", code], cwd=RIG, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while not (self.folder / "harness.child").exists():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
        os.kill(runner.pid, signal.SIGTERM)
        self.assertEqual(runner.wait(30), 1)
        self.await_end_of_child()


if __name__ == "__main__":
    unittest.main()
