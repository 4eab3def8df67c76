#!/usr/bin/env python3
"""The rig's own tests: the reader of captures against captures of siw, the cells, the guest's shells."""

import shutil
import socket
import struct
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

import beside
import conformance
import document
import kernel
import matrix
import outcome
import shown
import wire
import wireshark
from machine import Shell

CAPTURES = Path(__file__).parents[1] / "data/siw"


def connections(name):
    return wire.connections((CAPTURES / f"{name}.pcap").read_bytes())


class Wire(unittest.TestCase):
    """The reader."""

    def test_every_capture_is_read_to_the_last_octet(self):
        for file in CAPTURES.glob("*.pcap"):
            for connection in connections(file.stem):
                self.assertEqual((connection.initiator.left, connection.responder.left), (0, 0), file.stem)

    @unittest.skipUnless(wireshark.Tally().program, "tshark is not installed")
    def test_tshark_finds_what_is_malformed(self):
        tally = wireshark.Tally()
        self.assertIsNone(tally.read(CAPTURES / "rping_crc.pcap"))
        self.assertGreater(tally.frames, 10)
        # A Read Request that says it is shorter than its header.
        octets = (CAPTURES / "rping_crc.pcap").read_bytes().replace(b"\0\x2e\x41\x41", b"\0\x14\x41\x41", 1)
        with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
            file.write(octets)
            file.flush()
            self.assertIn("malformed", tally.read(Path(file.name)))

    def test_crc(self):
        self.assertEqual(wire.crc32c(b"123456789"), 0xE3069283)
        self.assertIsNone(shown.crc(True)(connections("rping_crc")))
        self.assertIsNone(shown.crc(False)(connections("rping_nocrc")))
        self.assertIsNotNone(shown.crc(True)(connections("rping_nocrc")))

    def test_revisions(self):
        self.assertIsNone(shown.revision(1)(connections("rping_mpav1")))
        self.assertIsNotNone(shown.revision(1)(connections("rping_nocrc")))

    def test_ready_to_receive(self):
        self.assertIsNone(shown.ready_to_receive("Write")(connections("rping_p2p")))
        self.assertIsNotNone(shown.ready_to_receive("Read Request")(connections("rping_p2p")))
        self.assertIsNone(shown.no_ready_to_receive(connections("rping_nocrc")))

    def test_large_fpdus(self):
        self.assertIsNone(shown.large_fpdus(connections("writebw_gso")))
        self.assertIsNotNone(shown.large_fpdus(connections("writebw_64k")))

    def test_terminates_in_both_orders_of_bits(self):
        siw = connections("term_write_oob")
        self.assertIsNone(shown.terminated("DDP", 1, 0x01, mirrored=True)(siw))
        self.assertIsNotNone(shown.terminated("DDP", 1, 0x01, mirrored=False)(siw))
        self.assertEqual(str(wire.terminate(terminate("2002 0000"))), "LLP, type 0, code 0x02")
        self.assertEqual(wire.terminate(terminate("0102 e000")).headers, 7)
        mirrored = wire.terminate(terminate("1002 0700"))
        self.assertEqual((mirrored.layer, mirrored.error_type, mirrored.headers), ("RDMAP", 1, 7))

    def test_markers_are_taken_out(self):
        # A Send of 500 octets as the first FPDU of a stream with markers: two of them.
        payload = bytes((7 * i + 3) % 256 for i in range(500))
        ulpdu = bytes.fromhex("4143 00000000 00000000 00000001 00000000") + payload
        plain = struct.pack(">H", len(ulpdu)) + ulpdu
        octets = bytes(4) + plain[:508] + bytes.fromhex("000001fc") + plain[508:]
        side = wire.Side()
        wire.read_fpdus(side, octets + bytes.fromhex("82fd572a"), markers=True)
        self.assertEqual([(f.payload == payload, f.crc_good) for f in side.fpdus], [(True, True)])


def terminate(control):
    return wire.Fpdu("Terminate", bytes(18) + bytes.fromhex(control), True, True, False)


class Cells(unittest.TestCase):
    """The matrix."""

    def test_every_cell_has_a_line_of_its_own(self):
        names = [str(cell) for cell in matrix.cells()]
        self.assertEqual(len(names), len(set(names)))

    def test_each_end_is_client_in_a_quick_run_of_each_program(self):
        quick = {(cell.program, cell.client) for cell in matrix.cells() if cell.quick}
        for program in ["rping", *matrix.PERFTEST]:
            for client in (matrix.SIW, matrix.WEFT):
                self.assertIn((program, client), quick)

    def test_the_table_has_every_cell(self):
        results = [outcome.Result(cell, outcome.PASSED, 1.0) for cell in matrix.cells()]
        failed = results[0]
        failed.outcome, failed.reason = outcome.FAILED, "it did not like it"
        table = outcome.table(results, outcome.Report("6.1", "tshark read them.", None))
        self.assertEqual(table.count("| yes"), len(results) - 1)
        self.assertIn("no [1]", table)
        self.assertIn("it did not like it", table)

    @staticmethod
    def run_of(*figures):
        """A run with one row, figures of siw and of Weft."""
        row = beside.row_of("send", 64, "lat").empty()
        for stack, values in zip(beside.STACKS, figures, strict=True):
            row["cells"].append({"stack": stack, "samples": [{"metrics": {row["metric"]: value}} for value in values]})
        return {"rows": [row]}

    def test_measurements_by_themselves_replace_their_section_alone(self):
        measured = self.run_of([300.0, 100.0, 200.0], [50.0, 60.0, 40.0])
        self.assertIn("| send-lat-64-unpinned | 200.0 µs | 50.0 µs | 0.25 |", beside.section(measured))
        results = [outcome.Result(cell, outcome.PASSED, 1.0) for cell in matrix.cells()]
        for failed in (0, 1):
            for result in results[:failed]:
                result.outcome, result.reason = outcome.FAILED, "it did not like it"
            with tempfile.TemporaryDirectory() as folder:
                docs = Path(folder) / "interop.md"
                docs.write_text(outcome.table(results, outcome.Report("6.1", "tshark read them.", None)), encoding="utf-8")
                other = f"{conformance.HEADING}\n\nAll pass."
                document.put(docs, other)
                for one in (self.run_of([1.0], [2.0]), measured):
                    document.put(docs, "\n".join(beside.section(one)))
                self.assertEqual(document.section(docs, conformance.HEADING), other)
                document.put(docs, f"{conformance.HEADING}\n\nOne fails.")
                text = docs.read_text(encoding="utf-8")
                docs.write_text(text.replace(f"{conformance.HEADING}\n\nOne fails.\n\n", ""), encoding="utf-8")
                whole = outcome.table(results, outcome.Report("6.1", "tshark read them.", measured))
                self.assertEqual(docs.read_text(encoding="utf-8"), document.wrapped(whole))

    def test_prose_is_wrapped_and_tables_and_headings_stay(self):
        words = " ".join(["word"] * 60)
        row = f"| {words} | {words} |"
        text = f"# {words}\n\n{words}\nmore\n\n- {words}\n- short\n  and more\n\n{row}\n"
        wrapped = document.wrapped(text)
        lines = wrapped.splitlines()
        self.assertEqual((lines[0], lines[-1]), (f"# {words}", row))
        self.assertTrue(all(len(line) <= document.WIDTH for line in lines[1:-1]))
        self.assertIn("- short and more", lines)
        self.assertEqual(wrapped.split(), text.split())
        self.assertEqual(document.wrapped(wrapped), wrapped)


class Archive:
    """Debian's archive as apt tells of it. The machine's index lists what the archive has, and what it had before."""

    def __init__(self, there, gone=()):
        self.there, self.listed = there, [*gone, *there]

    def run(self, program, *words, cwd=None, log=None):
        """Stands in for `kernel.run`."""
        own = words[0] == "-o"
        command, *asked = words[4:] if own else words
        if command == "download":
            return self.download(asked[1:])
        listed = self.there if own else self.listed
        return {"show": self.show, "madison": self.madison, "update": lambda *_: ""}[command](listed, asked)

    def download(self, asked):
        for package in asked:
            if tuple(package.split("=")) not in self.there:
                raise kernel.Unavailable(f"{package} is not found")

    @staticmethod
    def show(listed, asked):
        asked, _, version = asked[0].partition("=")
        shown = [one for name, one in listed if name == asked and version in ("", one)]
        if not shown:
            raise kernel.Unavailable(f"{asked} is not found")
        needs = "linux-image-6.1.0-{abi}-amd64 (= {version})" if asked == kernel.META else \
            "linux-headers-6.1.0-{abi}-common (= {version}), linux-kbuild-6.1 (>= {version})"
        return "".join(f"Package: {asked}\nDepends: {needs.format(abi=abi(one), version=one)}\n" for one in shown)

    @staticmethod
    def madison(listed, asked):
        lines = [f"{name} | {version} | http://deb.debian.org bookworm/main amd64 Packages" for name, version in listed
                 if name in asked]
        return "\n".join([*lines, "linux | 6.1.300-1 | http://deb.debian.org bookworm/main Sources", ""])


def abi(version):
    return version.split(".")[2].split("-")[0]


def of_kernel(version, kbuild):
    """The packages of a kernel."""
    release = f"6.1.0-{abi(version)}"
    names = (kernel.META, f"linux-image-{release}-amd64", f"linux-headers-{release}-amd64",
             f"linux-headers-{release}-common", "linux-source-6.1")
    return [*((name, version) for name in names), ("linux-kbuild-6.1", kbuild)]


@unittest.skipUnless(shutil.which("dpkg"), "there is no dpkg")
class Kernels(unittest.TestCase):
    """Which kernel is taken, of what the archive has."""

    def chosen(self, there, gone=()):
        """Versions of the image and of kbuild."""
        with mock.patch.object(kernel, "run", Archive(there, gone).run), tempfile.TemporaryDirectory() as work:
            choice = kernel.fetch(Path(work))
        return choice.version, choice.packages["kbuild"].split("=")[1]

    def test_the_newest_that_is_there_whole(self):
        older = of_kernel("6.1.176-1", "6.1.176-1")
        self.assertEqual(self.chosen([*of_kernel("6.1.192-2", "6.1.192-2"), *older]), ("6.1.192-2", "6.1.192-2"))
        # The archive has replaced kbuild, and the image not yet.
        newer = [("linux-kbuild-6.1", "6.1.192-4"), *of_kernel("6.1.192-2", "6.1.192-3")]
        self.assertEqual(self.chosen([*newer, *older]), ("6.1.192-2", "6.1.192-3"))
        self.assertEqual(self.chosen(of_kernel("6.1.192-2", "6.1.176-1") + older), ("6.1.176-1", "6.1.176-1"))
        for lacking in range(6):
            part = of_kernel("6.1.192-2", "6.1.192-2")
            del part[lacking]
            self.assertEqual(self.chosen([*part, *older]), ("6.1.176-1", "6.1.176-1"))

    def test_an_index_that_lists_what_is_gone_is_made_anew(self):
        gone = of_kernel("6.1.192-2", "6.1.192-2")
        self.assertEqual(self.chosen(of_kernel("6.1.200-1", "6.1.200-1"), gone), ("6.1.200-1", "6.1.200-1"))

    def test_what_is_missing_is_said(self):
        with self.assertRaisesRegex(kernel.Unavailable, "linux-image-amd64"):
            self.chosen([])
        with self.assertRaisesRegex(kernel.Unavailable, "=6.1.192-2 is not found"):
            self.chosen([], of_kernel("6.1.192-2", "6.1.192-2"))


class Shells(unittest.TestCase):
    """The shell at the other end of a virtio port, played by a thread."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = f"{folder.name}/port"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.shell = Shell(path)
        self.port, _ = self.listener.accept()
        for end in (self.shell.socket, self.port, self.listener):
            self.addCleanup(end.close)

    def answer(self, *pieces):
        """Answers the next command: each piece is sent by itself, `{mark}` filled in."""
        def work():
            line = self.port.recv(4096).decode()
            mark = "".join(line.split()[-3:-1])
            for piece in pieces:
                self.port.sendall(piece.format(mark=mark).encode())
        threading.Thread(target=work, daemon=True).start()

    def test_output_and_status(self):
        self.answer("one\r\ntwo", "\n{mark} 7", "\n")
        ended = self.shell.run("anything", 5)
        self.assertEqual((ended.status, ended.output), (7, "one\ntwo"))

    def test_a_command_without_end_is_late(self):
        self.answer("still at it")
        with self.assertRaises(kernel.Unavailable):
            self.shell.run("anything", 0.3)


if __name__ == "__main__":
    unittest.main()
