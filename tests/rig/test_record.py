#!/usr/bin/env python3
"""What the rig makes of samples. That the bench can read its records, eval/bench/tests/record.rs shows, for which

    tests/rig/test_record.py --write FILE WEFT      writes one, with the command WEFT
"""

import json
import stat
import sys
import tempfile
import time
import unittest
from pathlib import Path

import record
from record import Record, Row

NAMED = Row("loopback", "call-send", "call_ns", "a call of send", reference=("kernel",))
OWN = Row("guest", "write-bw-64K", "goodput_gbit_s", reference=("siw",),
          workload={"kind": "bulk", "op": "write", "size": 65536, "mode": "polling"})


def example(weft):
    """A record with one of everything."""
    run = Record(weft, repetitions=2, cores=[0, 1], only=["call"])
    run.path("loopback", "127.0.0.1", 65536, enter=())
    run.path("guest", "inside of a guest", 65536)
    run.path("veth", "two namespaces", skipped="no namespaces here")
    for value in (300, 100):
        run.sample(NAMED, "kernel", time.monotonic(), {"call_ns": value}, commands=[["/somewhere/rate", "calls", 1]])
    run.sample(NAMED, "hooks", time.monotonic(), {"call_ns": 250.5})
    run.sample(NAMED, "hooks", time.monotonic(), failure="it ended\nlast line\n")
    run.skip(NAMED, "other hooks", "not built")
    run.sample(OWN, "siw", time.monotonic(), {"goodput_gbit_s": 0.5})
    run.finish()
    return run


class Written(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        weft = self.folder / "weft"
        weft.write_text("#!/bin/sh\n[ \"$*\" = 'bench environment' ] && echo '{\"environment\": {\"cores\": 2}, \"sysctls\": "
                        "{\"net.core.rmem_max\": \"1\"}}'\n")
        weft.chmod(weft.stat().st_mode | stat.S_IXUSR)
        self.record = example(weft)

    def test_samples_are_kept_by_row_and_cell(self):
        run = self.record.run
        self.assertEqual([row["id"] for row in run["rows"]], ["loopback/call-send", "guest/write-bw-64K"])
        self.assertEqual(record.values(run, "loopback/call-send", "kernel", "call_ns"), [300, 100])
        self.assertEqual(record.median(run, "loopback/call-send", "kernel", "call_ns"), 200)
        samples = record.cell_of(run["rows"][0], "hooks")["samples"]
        self.assertEqual([sample["repetition"] for sample in samples], [1, 2])
        self.assertEqual(samples[1]["failure"], {"reason": "it ended", "tail": ["last line"]})
        self.assertIsNone(record.median(run, "loopback/call-send", "other hooks", "call_ns"))
        self.assertIsNone(record.median(run, "loopback/none", "kernel", "call_ns"))

    def test_folders_stay_out_of_it(self):
        self.assertNotIn("somewhere", json.dumps(self.record.run))
        self.assertEqual(record.cell_of(self.record.run["rows"][0], "kernel")["commands"], ["rate calls 1"])

    def test_the_command_tells_the_machine_and_the_network(self):
        self.assertEqual(self.record.run["environment"], {"cores": 2})
        sysctls = [path["sysctls"] for path in self.record.run["paths"]]
        self.assertEqual(sysctls, [{"net.core.rmem_max": "1"}, {}, {}])

    def test_one_that_did_not_come_to_its_end_says_so(self):
        self.assertFalse(self.record.run["interrupted"])
        self.assertTrue(Record(self.folder / "weft", 1).run["interrupted"])

    def test_what_was_written_is_read_and_other_files_are_refused(self):
        file = self.folder / "record.json"
        self.record.write(file)
        self.assertEqual(record.read(file), self.record.run)
        file.write_text("{}")
        with self.assertRaisesRegex(ValueError, "is not a weft-bench record"):
            record.read(file)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        example(sys.argv[3]).write(sys.argv[2])
    else:
        unittest.main()
