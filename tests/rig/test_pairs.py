#!/usr/bin/env python3
"""Pairs of two builds: the interval by tables and by hand, the order, when they end, and what is refused."""

import math
import shutil
import tempfile
import time
import unittest
from pathlib import Path

import pairs
from record import Record, Row


def of_hundredths(*values):
    """Ratios whose logarithms are these multiples of a hundredth."""
    return [math.exp(value / 100) for value in values]


WIDE = (60, 140, 80, 120, 100, 70, 130)


class Interval(unittest.TestCase):
    def test_critical_values_are_those_of_the_printed_tables(self):
        table = {6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 12: 13, 15: 25, 20: 52, 25: 89, 30: 137}  # two-sided, 5 %
        self.assertEqual({n: pairs.critical_value(n) for n in table}, table)
        self.assertIsNone(pairs.critical_value(pairs.FEWEST - 1))
        self.assertIsNone(pairs.critical_value(0))

    def test_by_hand(self):
        # Of 1 to 10 the 55 means of two run from 1 to 10 about 5.5; eight are left out at each end.
        ratio, (low, high) = pairs.estimate(of_hundredths(*range(1, 11)))
        for found, hundredths in ((ratio, 5.5), (low, 3), (high, 8)):
            self.assertAlmostEqual(math.log(found) * 100, hundredths)

    def test_six_pairs_have_an_interval_from_the_least_to_the_most_and_five_have_none(self):
        ratios = of_hundredths(3, -1, 2, 0, 1, 7)
        _, (low, high) = pairs.estimate(ratios)
        self.assertAlmostEqual(math.log(low) * 100, -1)
        self.assertAlmostEqual(math.log(high) * 100, 7)
        self.assertIsNone(pairs.estimate(ratios[:5])[1])
        self.assertIsNone(pairs.estimate([]))

    def test_verdicts(self):
        for said, ratios in ((pairs.NO_SLOWER, of_hundredths(1, -1, 1, -1, 1, -1)),
                             (pairs.NO_SLOWER, of_hundredths(20, 40, 20, 40, 20, 40)),
                             (pairs.SLOWER, of_hundredths(-5, -6, -5, -6, -5, -6)),
                             (pairs.SLOWER, of_hundredths(-5, -60, -5, -60, -5, -60)),
                             (pairs.TOO_WIDE, of_hundredths(9, -9, 9, -9, 9, -9)),
                             (pairs.TOO_FEW, of_hundredths(1)), (pairs.NO_FIGURE, [])):
            self.assertEqual(pairs.verdict(ratios), said)


class Taking(unittest.TestCase):
    """Pairs into a record, of a row that is a rate and of one that is a time."""

    RATE = Row("loopback", "rate", "requests_per_s", "answers")
    TIME = Row("loopback", "time", "rtt_us", "a round trip")

    def take(self, figures, rows=(RATE,), **more):
        """The record that a function of build and number fills, and the calls that were made."""
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        weft = folder / "weft"
        weft.write_text("#!/bin/sh\n[ $1 = --version ] && echo weft 1.2.3 && exit\n"
                        "echo '{\"environment\": {}, \"sysctls\": {}}'\n")
        weft.chmod(0o755)
        record = Record(weft, repetitions=1)
        calls = []

        def measure(file):
            build, number = record.turn
            self.assertEqual(file, files[build])
            calls.append((number, build))
            for row, figure in zip(rows, figures(build, number), strict=True):
                metrics = {row.metric: figure} if figure else None
                record.sample(row, "weft", time.monotonic(), metrics, failure="it ended")
        files = {pairs.THIS: weft, pairs.BESIDE: folder / "libweft_preload.so"}
        files[pairs.BESIDE].touch()
        options = {"until": pairs.PRECISION, "most": pairs.MOST} | more
        pairs.TwoBuilds(record, files, files, **options).take([(row.id, "weft") for row in rows], measure)
        return record.run, calls

    def test_the_order_alternates_and_narrow_pairs_end(self):
        run, calls = self.take(lambda build, number: [100 + (number % 2) * (build == pairs.THIS)])
        self.assertEqual(calls[:4], [(1, "this"), (1, "beside"), (2, "beside"), (2, "this")])
        self.assertEqual(len(calls), 2 * 6)
        self.assertEqual(list(pairs.slower(run)), [])
        cells = run["rows"][0]["cells"]
        self.assertEqual([cell["build"] for cell in cells], ["this", "beside"])
        self.assertEqual([sample["repetition"] for sample in cells[1]["samples"]], [1, 2, 3, 4, 5, 6])
        self.assertEqual(cells[0]["ratio"]["pairs"], 6)
        self.assertEqual(cells[0]["ratio"]["interval"], (1.0, 1.01))
        self.assertEqual([build["version"] for build in run["builds"]], ["1.2.3", None])
        self.assertEqual(run["options"]["precision"], 0.02)

    def test_wide_pairs_go_on_to_the_bound(self):
        run, calls = self.take(lambda build, number: [WIDE[number % 7] if build == pairs.THIS else 100])
        self.assertEqual(len(calls), 2 * pairs.MOST)
        row = list(pairs.table(run))[-1]
        self.assertIn("| loopback/rate | weft |", row)
        self.assertIn("| 30 | not decided: too wide |", row)

    def test_a_wider_interval_may_be_asked_for(self):
        _, calls = self.take(lambda build, number: [WIDE[number % 7] if build == pairs.THIS else 100], until=0.9)
        self.assertEqual(len(calls), 2 * 6)

    def test_all_rows_of_a_measurement_have_to_be_narrow(self):
        _, calls = self.take(lambda build, number: [100, WIDE[number % 7] if build == pairs.THIS else 100],
                             (self.RATE, self.TIME))
        self.assertEqual(len(calls), 2 * pairs.MOST)

    def test_times_are_turned(self):
        run, _ = self.take(lambda build, _: {"this": [200, 20], "beside": [100, 10]}[build], (self.RATE, self.TIME))
        self.assertEqual(pairs.ratios(run, "loopback/rate", "weft")[0], 2)
        self.assertEqual(pairs.ratios(run, "loopback/time", "weft")[0], 0.5)
        self.assertEqual(list(pairs.slower(run)),
                         ["loopback/time weft: slower than the build beside it: 0.500 (0.500 to 0.500)"])

    def test_a_build_that_gives_nothing_is_given_up(self):
        run, calls = self.take(lambda build, _: [1] if build == pairs.THIS else [None])
        self.assertEqual(len(calls), 2 * pairs.NO_FIGURE_PAIRS)
        self.assertEqual(list(pairs.slower(run)), ["loopback/rate weft: there is no pair with a figure of both builds"])
        self.assertNotIn("ratio", run["rows"][0]["cells"][0])


class Builds(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def find(self, given):
        return pairs.find(given, ("weft", "bin/weft"), lambda file: [file, "--version"])

    def script(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        file.chmod(0o755)
        return file

    def test_a_folder_a_prefix_or_the_file(self):
        built, installed = self.script("built/weft", "true"), self.script("prefix/bin/weft", "true")
        self.assertEqual(self.find(self.folder / "built"), built.resolve())
        self.assertEqual(self.find(self.folder / "prefix"), installed.resolve())
        self.assertEqual(self.find(built), built.resolve())
        said = pairs.describe(pairs.THIS, built, Path("built"))
        self.assertEqual((said["name"], said["path"], said["revision"]), ("this", "built", None))

    def test_what_is_no_build_is_refused_with_what_to_do(self):
        broken = self.script("broken", "echo no libraries; exit 1")
        for given, words in ((self.folder, "bin/weft"), (self.folder / "nothing", "is not a build"), (broken, "no libraries")):
            with self.assertRaisesRegex(pairs.NoBuild, words) as caught:
                self.find(given)
            self.assertIn("make build", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
