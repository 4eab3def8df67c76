#!/usr/bin/env python3
"""Networks of our own: made, joined, used and gone; and ports that nobody has."""

import os
import shutil
import socket
import subprocess
import sys
import unittest
from unittest import mock

import network
from network import Namespaces, acting_as, free_ports, ip, is_free, may_act_as, may_have_namespaces

SERVE = "import socket; s = socket.create_server(('10.88.0.1', 7000)); print(flush=True); s.accept()[0].sendall(b'x')"
FETCH = "import socket; print(socket.create_connection(('10.88.0.1', 7000), 30).recv(1))"


@unittest.skipUnless(may_have_namespaces(), "network namespaces need root and `ip`")
class Joined(unittest.TestCase):
    def setUp(self):
        self.namespaces = Namespaces()
        self.addCleanup(self.namespaces.close)

    def test_two_reach_each_other(self):
        one, other = self.namespaces.add("a"), self.namespaces.add("b")
        self.namespaces.join(one, other, here="eth7")
        one.up("eth7", "10.88.0.1/24", "fd88::1/64")
        other.up("eth0", "10.88.0.2/24")
        with subprocess.Popen([*one.enter, sys.executable, "-c", SERVE], stdout=subprocess.PIPE) as server:
            server.stdout.readline()
            got = subprocess.run([*other.enter, sys.executable, "-c", FETCH], capture_output=True, timeout=60, check=True)
        self.assertEqual(got.stdout, b"b'x'\n")

    def test_they_go_with_the_object(self):
        name = self.namespaces.add("a").name
        self.assertIn(name, self.names())
        self.namespaces.close()
        self.assertNotIn(name, self.names())

    def test_what_ip_says_is_the_reason(self):
        with self.assertRaisesRegex(OSError, "ip link set no-such-device up: .+"):
            ip("link", "set", "no-such-device", "up")

    @staticmethod
    def names():
        return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


class Users(unittest.TestCase):
    ANOTHER = 60001

    @unittest.skipUnless(os.geteuid() == 0 and may_act_as(ANOTHER), "to act as another user needs root")
    def test_a_command_is_the_other_users(self):
        done = subprocess.run([*acting_as(self.ANOTHER), "id", "-u"], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, f"{self.ANOTHER}\n")
        self.assertFalse(may_act_as(self.ANOTHER, ("false",)))
        self.assertFalse(may_act_as(self.ANOTHER, ("cat", "/proc/1/mem")))

    @unittest.skipUnless(shutil.which("unshare"), "there is no unshare")
    def test_nobody_acts_as_a_user_whom_the_namespace_does_not_number(self):
        look = f"import network; print(network.may_act_as({self.ANOTHER}))"
        inside = ["unshare", "--user", "--map-root-user", "--", sys.executable, "-c", look]
        done = subprocess.run(inside, capture_output=True, text=True, cwd=os.path.dirname(network.__file__))
        if done.returncode:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.stdout, "False\n")


class Ports(unittest.TestCase):
    def test_a_port_that_somebody_has_is_not_free(self):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as taken:
                taken.bind(("127.0.0.1", 0))
                if kind == socket.SOCK_STREAM:
                    taken.listen()
                port = taken.getsockname()[1]
                self.assertFalse(is_free(port, kind == socket.SOCK_DGRAM))
            self.assertTrue(is_free(port, kind == socket.SOCK_DGRAM))

    def test_ports_differ_and_those_taken_are_passed_over(self):
        ports = free_ports()
        first = next(ports)
        with mock.patch.object(network, "is_free", lambda port: port % 2 == 0):
            some = [next(ports) for _ in range(20)]
        self.assertEqual(len({first, *some}), 21)
        self.assertEqual([port for port in some if port % 2], [])
        self.assertTrue(all(20000 <= port < 30000 for port in some))


if __name__ == "__main__":
    unittest.main()
