#!/usr/bin/env python3
"""What fails once and passes alone is flaky, by name; what fails twice fails; and too many flaky tests are a failure."""

import contextlib
import io
import os
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import again
import cargo
from counts import Counts

ROOT = Path(__file__).resolve().parents[2]

CASES = r"""
#include "cases.h"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

CASE("steady.is-well") { EQ(1, 1); }
CASE("flaky.fails-the-first-time") { CHECK(open(MARK, O_CREAT | O_EXCL | O_RDWR, 0600) < 0); }
CASE("broken.fails-each-time") { EQ(1, BROKEN); }

int main(int argc, char **argv)
{
	return cases_main(argc, argv, &(struct program){.name = "again"});
}
"""

OUTPUT = """\
     Running unittests src/lib.rs (target/debug/deps/weft_os-1)

running 3 tests
test net::one ... ok
test net::two ... FAILED
test net::three ... some child wrote FAILED

failures:

---- net::two stdout ----

thread 'net::two' panicked at run/os/src/net.rs:7:9:
late
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace

---- net::three stdout ----
Error: early

failures:
    net::three
    net::two

test result: FAILED. 1 passed; 2 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/loopback.rs (target/debug/deps/loopback-2)
   Doc-tests weft_os

test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
""".splitlines()


@contextlib.contextmanager
def at_work_beside():
    """A process group that `scripts/test` would have at work beside the cases, and the number of its process."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as worker:
        os.environ["TESTS_BESIDE"] = str(worker.pid)
        try:
            yield worker.pid
        finally:
            del os.environ["TESTS_BESIDE"]
            worker.kill()


def state(process):
    """The letter of a process' state, once a signal that was sent to it has had its effect."""
    for _ in range(1000):
        letter = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
        if letter in "ST":
            break
        time.sleep(0.01)
    return letter


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)
        return file


class CCases(InFolder):
    """The harness of the C cases (tests/common)."""

    def cases(self, broken, *options, source=CASES):
        program, common = self.folder / "program", ROOT / "tests/common"
        source = self.write("program.c", source)
        subprocess.run(["cc", "-D_GNU_SOURCE", f'-DMARK="{self.folder}/mark"', f"-DBROKEN={broken}", "-I", common,
                        "-o", program, source, common / "cases.c"], check=True)
        return subprocess.run([program, *options], stdout=subprocess.PIPE, text=True, check=False)

    def test_a_case_that_passes_alone_is_flaky_and_counts_as_passed(self):
        done = self.cases(1, "--again")
        self.assertIn("flaky flaky.fails-the-first-time: ", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "3 passed, 0 failed, 0 skipped")
        self.assertEqual(done.returncode, 0)

    def test_a_case_that_fails_twice_fails(self):
        done = self.cases(2, "--again")
        self.assertIn("FAIL broken.fails-each-time: ", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "2 passed, 1 failed, 0 skipped")
        self.assertEqual(done.returncode, 1)

    def test_what_is_at_work_beside_stands_still_while_a_case_runs_again(self):
        with at_work_beside() as worker:
            look = f'system("sleep 0.2; ps -o stat= -p {worker} | cut -c 1 >>" MARK "-states");'
            source = CASES.replace("CHECK(open(MARK", f"{look} CHECK(open(MARK")
            self.cases(1, "--again", source=source)
            self.assertEqual((self.folder / "mark-states").read_text(encoding="utf-8").split(), ["S", "T"])
            self.assertEqual(state(worker), "S")

    def test_nothing_is_run_again_unasked(self):
        done = self.cases(1)
        self.assertIn("FAIL flaky.fails-the-first-time: ", done.stdout)
        self.assertEqual(done.returncode, 1)


class Cargo(unittest.TestCase):
    """What is read from cargo's output."""

    def test_failures_have_their_names_and_reasons(self):
        first = cargo.read(OUTPUT)[0]
        self.assertEqual((first.passed, first.failed, first.skipped, first.ended), (1, 2, 4, True))
        self.assertEqual(set(first.failures), {"net::two", "net::three"})
        self.assertIn("late", first.failures["net::two"])
        self.assertIn("early", first.failures["net::three"])

    def test_a_binary_that_dies_has_not_ended(self):
        titles = {binary.title: binary.ended for binary in cargo.read(OUTPUT)}
        self.assertEqual(titles, {"target/debug/deps/weft_os-1": True, "target/debug/deps/loopback-2": False,
                                  "weft_os": True})


    def test_what_is_logged_within_a_line_of_the_harness_takes_nothing_of_it(self):
        logged = "weft: warn: 127.0.0.1:1: peer closed the connection"
        printed = ["     Running tests/hostile.rs (target/debug/deps/hostile-1)", f"test one ... {logged}", logged, "FAILED",
                   f"test result: FAILED{logged}", logged, ". 8 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out"]
        binary, = cargo.read(printed)
        self.assertEqual((binary.passed, binary.failed, binary.ended), (8, 1, True))
        self.assertEqual(set(binary.failures), {"one"})


class Stages(InFolder):
    """What scripts/test makes of a stage that runs again whole."""

    def stage(self, script):
        """Runs scripts/test with one stage, which is this script."""
        self.write("scripts/test", (ROOT / "scripts/test").read_text(encoding="utf-8"))
        self.write("abi/preload/check.sh", f"#!/bin/bash\nmark={self.folder}/mark\n{script}")
        environment = os.environ | {"CARGO_TARGET_DIR": str(self.folder / "target")}
        return subprocess.run([self.folder / "scripts/test", "preload"], stdout=subprocess.PIPE, text=True, check=False,
                              env=environment)

    def test_what_fails_once_is_named_and_the_run_passes(self):
        done = self.stage('if [ -e "$mark" ]; then echo "2 passed, 0 failed, 0 skipped"; exit 0; fi; touch "$mark"\n'
                          'echo "not ok life (busy): late"; echo "1 passed, 1 failed, 0 skipped"; exit 1\n')
        self.assertIn("  preload: life (busy): late", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "2 passed, 0 failed, 0 skipped")
        self.assertEqual(done.returncode, 0)
        self.assertTrue((self.folder / "target/test-logs/preload.first.log").exists())

    def test_what_fails_twice_fails(self):
        done = self.stage('echo "not ok life (busy)"; echo "1 passed, 1 failed, 0 skipped"; exit 1\n')
        self.assertEqual(done.stdout.splitlines()[-1], "1 passed, 1 failed, 0 skipped")
        self.assertEqual(done.returncode, 1)

    def stages_beside(self, fuzz):
        """Runs the stages of scripts/test with one that works beside the others until one has been played again."""
        self.write("scripts/test", (ROOT / "scripts/test").read_text(encoding="utf-8"))
        self.write("Makefile", "build:\n")
        self.write("abi/preload/check.sh", f"""#!/bin/bash
            until [[ $state = [ST] ]]; do sleep 0.02; state=$(cut -d' ' -f3 /proc/$TESTS_BESIDE/stat); done
            echo "$state" >>{self.folder}/states
            [ -e {self.folder}/mark ] || {{ touch {self.folder}/mark; exit 1; }}
            touch {self.folder}/go""")
        self.write("bin/cargo", f"#!/bin/bash\nwhile [ ! -e {self.folder}/go ]; do sleep 0.1; done; echo compiled\n")
        self.write("fuzz/run.sh", f"#!/bin/bash\n{fuzz}\n")
        self.write("tests/rig/cargo.py", "import sys\nprint(sys.argv[1], '\\n1 passed, 0 failed, 0 skipped')")
        environment = os.environ | {"CARGO_TARGET_DIR": str(self.folder / "target"),
                                    "PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        return subprocess.run([self.folder / "scripts/test", "build", "preload", "unit", "pure", "fuzz"],
                              stdout=subprocess.PIPE, text=True, check=False, env=environment, timeout=60)

    def log(self, name):
        return (self.folder / "target/test-logs" / name).read_text(encoding="utf-8").split()

    def test_what_is_at_work_beside_the_stages_is_waited_for_and_stands_still_while_one_runs_again(self):
        done = self.stages_beside("sleep 1; echo 7 passed, 0 failed, 0 skipped")
        self.assertEqual(done.stdout.splitlines()[-1], "11 passed, 0 failed, 0 skipped")
        self.assertEqual(done.returncode, 0)
        self.assertEqual((self.folder / "states").read_text(encoding="utf-8").split(), ["S", "T"])
        self.assertEqual(self.log("beside.log"), ["compiled"])
        self.assertEqual((self.log("unit.log")[0], self.log("pure.log")[0]), ("--machine", "--pure"))

    def test_what_fails_beside_the_stages_fails(self):
        done = self.stages_beside("echo 5 passed, 2 failed, 0 skipped; exit 1")
        self.assertIn("    FAILED (exit status 1)", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "9 passed, 2 failed, 0 skipped")
        self.assertEqual(done.returncode, 1)

    def test_what_is_killed_beside_the_stages_is_a_failure_in_words(self):
        done = self.stages_beside("kill -9 0")
        self.assertIn("what ran beside the other stages ended early", done.stdout)
        self.assertEqual(done.returncode, 1)

    def test_more_than_five_flaky_cases_fail_the_run(self):
        for number, status in ((5, 0), (6, 1)):
            done = self.stage(f"seq -f 'flaky case %g: late' {number}; echo '9 passed, 0 failed, 0 skipped'\n")
            self.assertEqual(done.returncode, status, done.stdout)
            self.assertEqual(done.stdout.splitlines()[-1], f"9 passed, {status} failed, 0 skipped")


class CasesPlayedInTurn(unittest.TestCase):
    def test_what_fails_once_is_flaky_and_what_fails_twice_fails(self):
        left = {"steady": [], "flaky": ["once"], "broken": ["once", "twice"]}

        def play(name):
            if name == "absent":
                return "skipped", "no tool"
            return ("failed", left[name].pop(0)) if left[name] else ("passed", "")

        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            counts = again.play_each(["steady", "flaky", "broken", "absent"], play)
        self.assertEqual(counts, Counts(2, 1, 1))
        lines = said.getvalue().splitlines()
        self.assertIn("flaky flaky: once", lines)
        self.assertFalse([line for line in lines if line.startswith("flaky broken")])
        self.assertTrue([line for line in lines if line.startswith("failed broken") and line.endswith("twice")])


    def test_what_is_at_work_beside_stands_still_while_a_case_runs_again(self):
        states = []
        with at_work_beside() as worker:
            def play(_):
                states.append(state(worker))
                return ("failed", "late") if len(states) == 1 else ("passed", "")

            with contextlib.redirect_stdout(io.StringIO()):
                again.play_each(["flaky"], play)
            states.append(state(worker))
        self.assertEqual(states, ["S", "T", "S"])


if __name__ == "__main__":
    unittest.main()
