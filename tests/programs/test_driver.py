#!/usr/bin/env python3
"""The driver's own tests: a fake weft that plays well passes every case, and each way to go wrong is seen."""

import dataclasses
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import cells
import play
import report
import run
import stage

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import checks  # noqa: E402
from process import Ended  # noqa: E402

ORDINARY = cells.Place("ordinary", "loopback", "on")
CASES = {case.name: case for case in cells.cases(quick=True)}


# On a machine that stands still for a second every program is late, so only what never comes is waited for briefly.
PATIENT = {"START": 60.0, "GRACE": 60.0, "MIDWAY": 0.1, "NOTICE": 60.0, "DEATH": 60.0}


class WithStage(unittest.TestCase):
    """A stage with the fake weft."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        fake = shutil.copy(Path(__file__).with_name("fake_weft.py"), self.folder / "weft")
        os.chmod(fake, 0o755)
        self.stage = stage.Stage(fake)
        self.addCleanup(self.stage.close)

    def outcome(self, name, mode, place=ORDINARY, timeout=60.0, **patience):
        with (
            mock.patch.dict(os.environ, FAKE_WEFT=mode),
            mock.patch.object(shutil, "which", lambda name: name),
            mock.patch.multiple(play, **(PATIENT | patience)),
        ):
            case = dataclasses.replace(CASES[name], timeout=timeout)
            result = run.play(self.stage, case, place, self.folder / "cell")
        return result.outcome, result.reason or ""


class Outcomes(WithStage):
    """What the driver makes of programs that play well and of those that do not."""

    def fails(self, name, mode, reason, **patience):
        outcome, said = self.outcome(name, mode, **patience)
        self.assertEqual(outcome, "failed", said)
        self.assertRegex(said, reason)

    def test_every_case_passes_when_all_is_well(self):
        for name, case in CASES.items():
            with self.subTest(name):
                skipped = case.family == 6 and not stage.has_address("::1")
                expected = ("skipped", "loopback has no IPv6 address") if skipped else ("passed", "")
                self.assertEqual(self.outcome(name, "well"), expected)

    def test_a_port_that_looks_like_a_count(self):
        self.stage.ports = itertools.chain([20000], self.stage.ports)
        self.assertEqual(self.outcome("ib_send_bw -R", "well"), ("passed", ""))

    def test_a_server_that_dies(self):
        self.fails("ucmatose", "dies", "server: exit status 1 before it listened: cannot bind")

    def test_a_server_that_never_listens(self):
        self.fails("ucmatose", "never-listens", "server: not listening", START=1.5)

    def test_a_server_that_hangs(self):
        self.fails("ib_send_bw -R", "server-hangs", "server: did not end", GRACE=0.5)

    def test_a_client_that_hangs(self):
        self.fails("ib_send_bw -R", "client-hangs", "client: did not end", timeout=2.0, GRACE=0.5)

    def test_one_time_of_many_that_fails(self):
        self.fails("ibv_rc_pingpong -g 0, again and again", "status", "time 1 of 5: server: exit status 1")

    def test_a_bad_exit_status(self):
        self.fails("rping -Vv -C 100 (IPv4)", "status", "server: exit status 1")

    def test_a_crash(self):
        self.fails("rping -Vv -C 100 (IPv4)", "crash", "server: ended by SIGABRT")
        self.fails("ib_send_bw -R -a, client stopped by Ctrl-C", "crash", "server: ended by SIGABRT")

    def test_a_line_that_speaks_of_an_error(self):
        self.fails("ib_read_lat -R", "error-line", "client says: Completion with error")

    def test_output_that_is_not_complete(self):
        self.fails("ib_write_bw -R -a", "few-rows", "22 of 23 rows")
        self.fails("ib_write_bw -R", "few-rows", "0 of 1 rows")
        self.fails("rping -Vv -C 100 (IPv4)", "few-rows", "99 of 100 pings")
        self.fails("fio --verb=send --bs=4k --iodepth=1", "few-rows", "client issued total=0,1023,: not total=0,1024,")

    def test_a_service_that_ends_with_its_first_client(self):
        self.fails("cmtime -c 100", "status", "server: exit status 1 before its client")
        self.fails("qperf -cm 1", "crash", "server: ended by SIGABRT before its client")

    def test_a_client_of_a_service(self):
        self.fails("cmtime -c 100", "client-hangs", "client: did not end", timeout=2.0)
        self.fails("qperf -cm 1", "few-rows", r"no result for \['rc_bw'\]")

    def test_rows_of_rstream_and_a_copy_that_is_none(self):
        self.fails("rstream -T v -T b (IPv4)", "few-rows", "server printed 7 of 8 rows")
        self.fails("riostream -T v -f ipv6 (IPv6)", "few-rows", "server printed 0 of 1 rows")
        self.fails("rcopy", "few-rows", "the copy is not what was copied")

    def test_rows_of_libfabric(self):
        self.fails("fi_pingpong -p 'verbs' -e dgram -c", "few-rows", "server printed 3 of 4 rows")
        self.fails("fi_pingpong -p 'verbs;ofi_rxm' -e rdm -c", "few-rows", "server printed 5 of 6 rows")

    def test_figures_of_zero(self):
        self.fails("ib_read_bw -R", "zero", "measured nothing")

    def test_devices(self):
        self.fails("ibv_devices", "other-device", "mlx5_0")
        self.fails("ibv_devinfo -v", "other-device", "no line like")
        self.fails("ibv_devinfo -v", "stderr", "stderr: a remark")

    def test_a_client_that_makes_too_few_connections(self):
        name = "ib_send_bw -R -a, client stopped by Ctrl-C"
        with mock.patch.dict(CASES, {name: dataclasses.replace(CASES[name], connections=3)}):
            self.fails(name, "well", "client: not connected after 2 s", START=1.5)

    def test_an_end_that_does_not_notice(self):
        name = "ib_send_bw -R -a, client stopped by Ctrl-C"
        self.fails(name, "server-hangs", "server: did not end within 1 s", NOTICE=1.0)

    def test_nothing_is_left_running(self):
        self.fails("ib_send_bw -R", "client-hangs", "client: did not end", timeout=2.0, GRACE=0.5)
        left = subprocess.run(["pgrep", "-f", str(self.stage.folder)], capture_output=True, text=True, check=False)
        self.assertEqual(left.stdout, "")


class Places(WithStage):
    """Users and networks."""

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_two_namespaces_and_their_end(self):
        place = cells.Place("ordinary", "veth", "off")
        self.assertEqual(self.outcome("ib_send_bw -R", "well", place), ("passed", ""))
        self.assertEqual(self.outcome("rping -Vv -C 100 (IPv6)", "well", place), ("passed", ""))
        names = [namespace.name for namespace in self.stage.networks["veth"].namespaces.all]
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        self.assertEqual([name in listed for name in names], [True, True])
        self.stage.close()
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        self.assertFalse([name for name in names if name in listed])

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_a_launcher_starts_a_command_on_the_host_that_has_the_address(self):
        self.assertIsInstance(self.stage.network("veth"), stage.Veth)
        launcher = self.stage.launcher("veth")
        network = self.stage.network("veth")
        for host in (network.server, network.client):
            address = host.addresses[4]
            done = subprocess.run([launcher, address, "ip", "-4", "-br", "addr", "show", "eth0; echo $LD_PRELOAD."],
                                  env={**os.environ, "LD_PRELOAD": ""}, capture_output=True, text=True, check=True)
            self.assertIn(address, done.stdout)
            self.assertTrue(done.stdout.endswith("\n.\n"), done.stdout)
        done = subprocess.run([launcher, "192.0.2.1", "true"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, "no host has the address 192.0.2.1\n"))

    def test_a_missing_program_is_skipped_in_words(self):
        case = cells.Case("none", "single", ("no-such-program",))
        result = run.play(self.stage, case, ORDINARY, self.folder / "cell")
        self.assertEqual((result.outcome, result.reason), ("skipped", "no-such-program is not installed"))

    def test_a_loopback_without_ipv6(self):
        with mock.patch.object(stage, "has_address", lambda _: False):
            self.assertEqual(self.outcome("rping -Vv -C 100 (IPv6)", "well"), ("skipped", "loopback has no IPv6 address"))
            self.assertEqual(self.outcome("rping -Vv -C 100 (IPv4)", "well"), ("passed", ""))

    def test_what_needs_root_is_skipped_without_it(self):
        with mock.patch.object(os, "geteuid", lambda: 1000):
            for place in (cells.Place("root", "loopback", "on"), cells.Place("ordinary", "veth", "on")):
                self.assertEqual(self.outcome("ibv_devices", "well", place)[0], "skipped")


class Table(unittest.TestCase):
    """The table of cells and what is written from it."""

    def test_a_quick_run_has_every_case_and_every_pair_of_axes(self):
        quick = cells.cells(quick=True)
        every = {case.name for case in cells.cases(quick=False)}
        self.assertEqual({case.name for case, _ in quick}, every)
        used = {place for _, place in quick}
        for first, second in (("user", "network"), ("user", "crc"), ("network", "crc")):
            pairs = {(getattr(place, first), getattr(place, second)) for place in used}
            self.assertEqual(len(pairs), 4, (first, second))

    def test_a_case_about_two_hosts_is_played_on_two_by_whom_it_can_be(self):
        quick = [(case, place) for case, place in cells.cells(quick=True) if case.first == "veth"]
        self.assertTrue(quick)
        for case, place in quick:
            self.assertEqual(place.network, "veth", case.name)
            self.assertIn(place.user, case.users)
        self.assertTrue(all(case.suits(place) for case, place in cells.cells(quick=False)))

    def test_names_are_one_to_a_case(self):
        names = [case.name for case in cells.cases(quick=False)]
        self.assertEqual(len(names), len(set(names)))

    def test_options_are_those_the_programs_have(self):
        for program, options in cells.PERFTEST.items():
            if not shutil.which(program):
                self.skipTest(f"{program} is not installed")
            done = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
            known = set(re.findall(r"^\s+(-\w)\b", done.stdout, re.MULTILINE))
            known |= set(re.findall(r"^\s+(?:-\w, )?(--[\w-]+)", done.stdout, re.MULTILINE))
            wanted = ("-A", "-a", "-b", "-q", "-e", "-I", "-l", "--use-srq", "-D")
            self.assertEqual(options.split(), [option for option in wanted if option in known], program)

    def test_the_table_in_the_docs(self):
        results = [report.Result(case.name, place, "passed", 1.0) for case, place in cells.cells(quick=False)]
        results[0] = report.Result(results[0].case, results[0].place, "failed", 1.0, "no device")
        text = report.table(results)
        first = next(line for line in text.splitlines() if line.startswith("| `ibv_devices`"))
        self.assertEqual(first, "| `ibv_devices` | CRC off only [1] | yes | yes | yes |")
        self.assertIn("1. `ibv_devices`, CRC on: failed: no device", text)
        fields = {(case.name, place.user, place.network) for case, place in cells.cells(quick=False)}
        self.assertEqual(text.count("yes |"), len(fields) - 1)
        self.assertEqual(text.count("| - "), 4 * len(cells.cases(quick=False)) - len(fields))

    def test_the_end_of_what_a_failed_cell_said(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "ib-send-bw-ordinary")
            Path(f"{log}.client.out").write_text("".join(f"{number}\n" for number in range(20)), encoding="utf-8")
            Path(f"{log}.server.err").write_text("Couldn't connect\n", encoding="utf-8")
            Path(folder, "ib-send-bw-r-ordinary.client.out").write_text("another cell's\n", encoding="utf-8")
            lines = report.ends(log).splitlines()
        self.assertEqual(lines[0], "    client.out: 14")
        self.assertEqual(lines[-1], "    server.err: Couldn't connect")
        self.assertEqual(len(lines), 7)

    def test_a_row_is_excused_where_perftest_had_no_clock_and_no_other(self):
        header = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]\n"
        good, timeless = " 2   100   9.26   38.56   11.13   12.95   6.00\n", " 4   100   inf   inf   inf   inf   -nan\n"
        idle = " 8   1000   0.00   0.00   0.000000\n"
        said = "Correlation coefficient r^2: 0.895983 < 0.9\n"
        for rows, errors, complaint in (
            (good + timeless, said, None),
            (good + idle, said, None),
            (good + timeless, "", "client measured nothing at 4 octets"),
            (timeless + idle, said, "client measured nothing at 4 octets"),
            (timeless, said + "Completion with error\n", "client says: Completion with error"),
            (good, said, "client printed 1 of 2 rows of results"),
        ):
            count = 1 if rows == timeless else 2
            client = Ended(0, header + rows, errors)
            self.assertEqual(checks.perftest_rows(count)(Ended(0, "", said), client), complaint)

    def test_figures_are_read_from_the_tables(self):
        bandwidth = " #bytes  #iterations BW peak[MiB/sec]  BW average[MiB/sec]  MsgRate[Mpps]\n 64 1000 9.00 8.00 0.1\n"
        figure = checks.figure(CASES["ib_send_bw -R"], Ended(0, bandwidth, ""))
        self.assertEqual(figure, {"octets": 64.0, "value": 8.0, "unit": "MiB/s"})


if __name__ == "__main__":
    unittest.main()
