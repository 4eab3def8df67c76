#!/usr/bin/env python3
"""What the rig makes of the closing lines of programs."""

import contextlib
import io
import unittest

import counts
from counts import Counts


class Lines(unittest.TestCase):
    def test_a_closing_line_is_read_and_written(self):
        told = counts.read("12 passed, 3 failed, 4 skipped\n")
        self.assertEqual(told, Counts(12, 3, 4))
        self.assertEqual(str(told), "12 passed, 3 failed, 4 skipped")

    def test_other_lines_are_none(self):
        for line in ("hooks gso: 1 passed, 0 failed, 0 skipped", "1 passed, 0 failed", "ok one"):
            self.assertIsNone(counts.read(line), line)

    def test_outcomes_are_counted_and_added_up(self):
        total = Counts.of(["passed", "failed", "passed"])
        total.add("skipped")
        self.assertEqual(total + Counts(1, 0, 5), Counts(3, 1, 6))

    def test_the_exit_status_says_whether_anything_failed(self):
        for told, status in ((Counts(3, 0, 1), 0), (Counts(3, 1, 0), 1)):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                self.assertEqual(told.close(), status)
            self.assertEqual(said.getvalue(), f"{told}\n")


class Cases(unittest.TestCase):
    """Programs of cases, faked by a shell that says their lines."""

    def run_of(self, lines, status=0, **more):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            told = counts.of_cases("fake", ["sh", "-c", 'printf "%s\\n" "$@"; exit ' + str(status), "sh", *lines], **more)
        return told, said.getvalue().splitlines()

    def test_what_failed_is_passed_on_and_what_went_well_is_not(self):
        told, said = self.run_of(["ok a", "skip b: why", "FAIL c: wrong", "flaky d: late", "2 passed, 1 failed, 1 skipped"],
                                 status=1)
        self.assertEqual(told, Counts(2, 1, 1))
        self.assertEqual(said, ["--- fake", "FAIL c: wrong", "flaky d: late", "fake: 2 passed, 1 failed, 1 skipped"])

    def test_an_end_without_counts_is_a_failure(self):
        told, said = self.run_of(["ok a"])
        self.assertEqual(told, Counts(0, 1, 0))
        self.assertIn("FAIL fake: exit status 0 without a failure counted", said)

    def test_a_bad_end_with_good_counts_is_a_failure(self):
        self.assertEqual(self.run_of(["2 passed, 0 failed, 0 skipped"], status=9)[0], Counts(2, 1, 0))

    def test_what_fails_by_intention_is_skipped_with_its_reason(self):
        told, said = self.run_of(["FAIL a: wrong", "FAIL b: wrong", "1 passed, 2 failed, 0 skipped"], status=1,
                                 different={"a": "it has to"})
        self.assertEqual(told, Counts(1, 1, 1))
        self.assertIn("skipped a (fake): it has to", said)
        self.assertIn("FAIL b: wrong", said)

    def test_what_was_to_fail_and_passes_is_a_failure(self):
        told, said = self.run_of(["ok a", "1 passed, 0 failed, 0 skipped"], different={"a": "it has to"})
        self.assertEqual(told, Counts(1, 1, 0))
        self.assertIn("FAIL a (fake): it does not differ any more", said)

    def test_variables_reach_the_program(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            counts.of_cases("fake", ["sh", "-c", 'echo "FAIL $RIG_SAYS: x"; echo "0 passed, 1 failed, 0 skipped"'],
                            {"RIG_SAYS": "here"})
        self.assertIn("FAIL here: x", said.getvalue())


if __name__ == "__main__":
    unittest.main()
