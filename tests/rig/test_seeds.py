"""Tests of the random runs."""

import contextlib
import io
import itertools
import unittest

import seeds


def played(runs, seconds=0, shows=None):
    """Plays runs of which `runs(seed, time)` gives what is wrong, and what was counted; `time` counts a seed's."""
    times = {}

    def run(seed):
        times[seed] = times.get(seed, 0) + 1
        return runs(seed, times[seed])

    with contextlib.redirect_stdout(io.StringIO()) as output:
        return seeds.play(run, "label", itertools.count(1), seconds, shows), output.getvalue()


class Play(unittest.TestCase):
    def test_one_run_at_least_and_its_counts(self):
        result, output = played(lambda seed, _: (None, {"kills": seed}))
        self.assertEqual((result.how, result.runs, result.sums, output), ("passed", 1, {"kills": 1}, ""))

    def test_what_fails_again_has_failed(self):
        result, output = played(lambda seed, time: (f"wrong {time}", None))
        self.assertEqual((result.how, result.why), ("failed", "seed 1: wrong 2"))
        self.assertIn("seed 1 again (label): 3 of 3 runs fail", output)

    def test_what_does_not_fail_again_is_flaky_and_a_second_one_is_not(self):
        def runs(seed, time):
            return ("wrong", None) if time == 1 and seed in wrong else (None, {"kills": int(seed > 3)})
        wrong = {1}
        result, output = played(runs, shows="kills")
        self.assertEqual((result.how, result.runs), ("passed", 4))
        self.assertIn("label", output)
        wrong = {1, 3}
        result, _ = played(runs, shows="kills")
        self.assertEqual((result.how, result.why), ("failed", "seed 3: wrong"))

    def test_what_has_to_be_seen_is_waited_for_and_missed(self):
        result, _ = played(lambda seed, _: (None, {"kills": 0}), shows="kills")
        self.assertEqual((result.how, result.runs), ("failed", seeds.RUNS_TO_SHOW))
        self.assertEqual(result.why, f"no kills in {seeds.RUNS_TO_SHOW} runs")


if __name__ == "__main__":
    unittest.main()
