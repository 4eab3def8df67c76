#!/usr/bin/env python3
"""Programs are started, looked at, heard and ended as the rig says, shown with small fake ones."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import process
from process import Failed, Process, Talker, until

RIG = Path(__file__).resolve().parent
PATIENCE = 30  # seconds until what has to come has come

SERVER = """
import socket, sys, time
kind = socket.SOCK_DGRAM if "datagrams" in sys.argv else socket.SOCK_STREAM
print("before", flush=True)
time.sleep(0.1)
server = socket.socket(socket.AF_INET, kind)
server.bind(("127.0.0.1", int(sys.argv[1])))
if kind == socket.SOCK_STREAM:
    server.listen()
time.sleep(600)
"""

TALKER = """
import json, os, resource, sys
print(json.dumps({"pid": os.getpid(), "files": resource.getrlimit(resource.RLIMIT_NOFILE)}), flush=True)
for line in sys.stdin:
    if line == "die\\n":
        sys.exit("no more of this")
    if line == "twice\\n":
        print("1\\n2", flush=True)
    elif line != "nothing\\n":
        print(json.dumps({"told": line.strip()}), flush=True)
print(json.dumps("the end"))
"""


def fake(program, *words):
    """The command of a program in Python."""
    return [sys.executable, "-c", textwrap.dedent(program), *map(str, words)]


def is_gone(pid):
    """Whether a process has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def a_port(kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Started(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start(self, command):
        started = Process(command, dict(os.environ), self.folder / "program")
        self.addCleanup(started.stop)
        return started

    def test_it_is_seen_to_listen_and_its_connections_are_counted(self):
        port = a_port()
        server = self.start(fake(SERVER, port))
        self.assertTrue(until(lambda: server.listens(port), PATIENCE))
        self.assertFalse(server.listens(port, datagrams=True))
        self.assertEqual(server.connections(port), 0)
        with socket.create_connection(("127.0.0.1", port)):
            self.assertTrue(until(lambda: server.connections(port) == 1, PATIENCE))
            self.assertTrue(process.listens(port))
        server.stop()
        self.assertFalse(process.listens(port))

    def test_a_port_of_datagrams_is_seen(self):
        port = a_port(socket.SOCK_DGRAM)
        server = self.start(fake(SERVER, port, "datagrams"))
        self.assertTrue(until(lambda: server.listens(port, datagrams=True), PATIENCE))
        self.assertFalse(server.listens(port))

    def test_what_it_says_and_how_it_ends_is_kept(self):
        program = self.start(["sh", "-c", "echo out; echo err >&2; exit 3"])
        self.assertTrue(program.wait(PATIENCE))
        ended = program.result()
        self.assertEqual((ended.status, ended.output, ended.errors), (3, "out\n", "err\n"))
        self.assertEqual(ended.how(), "exit status 3")
        self.assertEqual(ended.last_line(), "err")

    def test_an_end_by_a_signal_has_its_name(self):
        program = self.start(["sleep", "600"])
        program.signal(signal.SIGTERM)
        self.assertTrue(program.wait(PATIENCE))
        self.assertEqual(program.result().how(), "ended by SIGTERM")

    def test_end_asks_before_it_kills(self):
        for does, how in (("exit 7", "exit status 7"), (":", "ended by SIGKILL")):
            program = self.start(["sh", "-c", f"trap '{does}' TERM; echo ready; while :; do sleep 0.05; done"])
            self.assertTrue(until(lambda p=program: "ready" in Path(f"{p.log}.out").read_text(), PATIENCE))
            program.end(PATIENCE if does != ":" else 0.2)
            self.assertEqual(program.result().how(), how)

    def test_stop_ends_what_it_started_too(self):
        program = self.start(["sh", "-c", "sleep 600 & echo $!; wait"])
        said = self.folder / "program.out"
        self.assertTrue(until(lambda: said.read_text().strip(), PATIENCE))
        program.stop()
        self.assertTrue(until(lambda: is_gone(int(said.read_text())), PATIENCE))

    def test_who_does_not_end_is_waited_for_no_longer(self):
        program = self.start(["sleep", "600"])
        self.assertFalse(program.wait(0.05))
        self.assertFalse(program.wait_awake(0.05))
        self.assertFalse(until(program.ended, 0.05))


class Told(unittest.TestCase):
    def talker(self, **more):
        talker = Talker(fake(TALKER), **more)
        self.addCleanup(talker.kill)
        self.first = talker.hear(PATIENCE)
        return talker

    def test_it_is_asked_and_ended(self):
        talker = self.talker(files=(77, 99))
        self.assertEqual(self.first, {"pid": talker.pid, "files": [77, 99]})
        self.assertEqual(talker.ask("a line", PATIENCE), {"told": "a line"})
        self.assertEqual(talker.end(), "the end")

    def test_an_end_is_told_with_its_last_words(self):
        with self.assertRaisesRegex(Failed, "exit status 1. no more of this$"):
            self.talker().ask("die", PATIENCE)

    def test_lines_that_come_together_are_heard_one_by_one(self):
        talker = self.talker()
        self.assertEqual(talker.ask("twice", PATIENCE), 1)
        self.assertEqual(talker.hear(PATIENCE), 2)

    def test_silence_is_told(self):
        with self.assertRaisesRegex(Failed, "silent for 0.1 s"):
            self.talker().ask("nothing", 0.1)

    def test_its_errors_go_where_they_are_wanted(self):
        with tempfile.TemporaryFile("w+") as errors:
            talker = self.talker(errors=errors)
            talker.tell("die")
            talker.process.wait(PATIENCE)
            errors.seek(0)
            self.assertEqual(errors.read(), "no more of this\n")

    def test_it_does_not_outlive_who_started_it(self):
        starter = fake("""
            import sys, time
            sys.path.append(sys.argv[1])
            from process import Talker
            print(Talker(["sleep", "600"]).pid, flush=True)
            time.sleep(600)
            """, RIG)
        with subprocess.Popen(starter, stdout=subprocess.PIPE, text=True) as parent:
            child = int(parent.stdout.readline())
            self.assertFalse(is_gone(child))
            parent.kill()
        self.assertTrue(until(lambda: is_gone(child), PATIENCE))


if __name__ == "__main__":
    unittest.main()
