"""Two network namespaces with `weft link` between them, and what the cases do over it.

Everything lives in a user, network and mount namespace of the run's own (`enter`), in which the run is root. It goes
with the run's last process, whatever becomes of the run.
"""

import ctypes
import hashlib
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
from network import Namespaces, ip  # noqa: E402

# The ends. Each has an interface eth0, whose other end in the middle has the name of the end.
LEFT, RIGHT = "left", "right"
ADDRESS = {LEFT: "192.0.2.1", RIGHT: "192.0.2.2"}
ADDRESS6 = {LEFT: "2001:db8::1", RIGHT: "2001:db8::2"}
HARDWARE = {LEFT: "02:00:00:00:00:01", RIGHT: "02:00:00:00:00:02"}
CLONE_NEWNET = 0x40000000
UDP_SEGMENT = 103
IP_MTU_DISCOVER = 10
IP_PMTUDISC_DONT = 0
# A machine may stand still for a while; what has to come is waited for so long.
PATIENCE = 20
# Datagrams that are under way at once: the receiver's buffer has room for them, if they are small or few.
AT_ONCE = 400


class Bed:
    def __init__(self, weft):
        self.weft = weft
        # Where `ip` keeps the names of namespaces; the run's own, as its root is not the machine's.
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
        self.namespaces = Namespaces()
        self.middle = self.namespaces.add("middle")
        self.ends = {end: self.namespaces.add(end) for end in (LEFT, RIGHT)}
        for end, namespace in self.ends.items():
            self.namespaces.join(self.middle, namespace, here=end)
            self.middle.up(end)
            self.ip(end, "link", "set", "eth0", "address", HARDWARE[end])
            # Frames that a kernel sends of its own accord would change which frame meets which fate.
            self.run(end, "sysctl", "-qw", "net.ipv6.conf.eth0.router_solicitations=0",
                     "net.ipv6.conf.eth0.addr_gen_mode=1", "net.ipv6.conf.eth0.mldv2_unsolicited_report_interval=1")
            namespace.up("eth0", f"{ADDRESS[end]}/24", f"{ADDRESS6[end]}/64")
        for end, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
            for address in (ADDRESS[other], ADDRESS6[other]):
                self.ip(end, "neighbor", "add", address, "lladdr", HARDWARE[other], "dev", "eth0", "nud", "permanent")
        # Those frames that belong to the beginning are gone then.
        time.sleep(0.2)

    def close(self):
        self.namespaces.close()

    def ip(self, end, *words):
        """Runs `ip` in the namespace of an end."""
        ip("-n", self.ends[end].name, *words)

    def run(self, end, *words, **options):
        return subprocess.run([*self.ends[end].enter, *words], check=True, capture_output=True, text=True, **options)

    def links(self):
        """What the kernel says of the interfaces between which the emulator stands."""
        words = ["ip", "-n", self.middle.name, "-d", "-o", "link", "show"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    @contextmanager
    def link(self, *options, status=0, kill=signal.SIGTERM):
        """`weft link` between the ends. Gives a value whose `report` is what it said, once it has ended."""
        words = [*self.middle.enter, self.weft, "link", LEFT, RIGHT, "--json", *options]
        if "--late-max" not in options:
            # A machine that is busy with other things is no failure of the case.
            words += ["--late-max", "1s"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        link = Link(process)
        try:
            ready = process.stderr.readline()
            assert "forwarding between left and right" in ready, ready + process.stderr.read()
            yield link
            process.send_signal(kill)
        except BaseException:
            process.kill()
            raise
        finally:
            out, err = process.communicate(timeout=PATIENCE)
        link.stderr = err
        assert process.returncode == (-kill if kill == signal.SIGKILL else status), f"{process.returncode}: {err}"
        link.report = json.loads(out) if out else None

    def refused(self, *words, prefix=()):
        """What `weft link` says that does not begin."""
        words = [*self.middle.enter, *prefix, self.weft, "link", *words]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 1 and not done.stdout, done
        return done.stderr

    def socket(self, end, *kind):
        """A socket in the namespace of an end. It stays there; the thread that makes it comes back."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net") as own, open(f"/run/netns/{self.ends[end].name}") as other:
            if libc.setns(other.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
            try:
                return socket.socket(*kind)
            finally:
                libc.setns(own.fileno(), CLONE_NEWNET)


class Link:
    def __init__(self, process):
        self.process = process
        self.report = None
        self.stderr = None

    def there(self):
        """What happened to frames from left to right."""
        return self.report["directions"][0]


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def round_trips(bed, address, count):
    """Times of echo requests from left, in seconds; None for what was not answered."""
    six = ":" in address
    kind, answer, proto = (128, 129, socket.getprotobyname("ipv6-icmp")) if six else (8, 0, socket.IPPROTO_ICMP)
    times = []
    with bed.socket(LEFT, family_of(address), socket.SOCK_RAW, proto) as raw:
        raw.settimeout(PATIENCE)
        for number in range(count):
            message = bytearray(struct.pack("!BBHHH", kind, 0, 0, os.getpid() & 0xFFFF, number) + bytes(48))
            if not six:
                total = sum(struct.unpack("!28H", message))
                total = (total & 0xFFFF) + (total >> 16)
                message[2:4] = struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF)
            begin = time.monotonic()
            raw.sendto(message, (address, 0))
            times.append(None)
            while time.monotonic() < begin + PATIENCE:
                try:
                    packet = raw.recv(2000)
                except TimeoutError:
                    break
                packet = packet if six else packet[20:]
                if packet[0] == answer and packet[4:8] == bytes(message[4:8]):
                    times[-1] = time.monotonic() - begin
                    break
    return times


def transfer(bed, octets, six=False, pace=None):
    """Sends octets from left to right over TCP; asserts that they arrive, and gives the seconds from
    the first write to the last octet."""
    address = (ADDRESS6 if six else ADDRESS)[RIGHT]
    data = os.urandom(octets)
    got, times = hashlib.sha256(), []
    with bed.socket(RIGHT, family_of(address), socket.SOCK_STREAM) as listener, \
            bed.socket(LEFT, family_of(address), socket.SOCK_STREAM) as sender:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, 0))
        listener.listen(1)
        listener.settimeout(PATIENCE)

        def receive():
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(PATIENCE)
                while piece := connection.recv(1 << 18):
                    got.update(piece)
                times.append(time.monotonic())

        receiver = threading.Thread(target=receive, daemon=True)
        receiver.start()
        sender.settimeout(PATIENCE)
        sender.connect((address, listener.getsockname()[1]))
        times.append(time.monotonic())
        if pace:
            # Writes that the kernel cannot put together, for small segments.
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(0, octets, pace):
                sender.sendall(data[at:at + pace])
        else:
            sender.sendall(data)
        sender.shutdown(socket.SHUT_WR)
        receiver.join(PATIENCE)
    assert len(times) == 2, "the stream did not end"
    assert got.digest() == hashlib.sha256(data).digest(), "the octets are others"
    return times[1] - times[0]


def datagrams(bed, count, length=200, segment=None, no_discovery=False, whole=False):
    """Numbers of the datagrams that arrived of those sent from left to right, in order of arrival; and how many more
    were sent, to see that none is under way any more: it is so when one of these arrives, and not when nothing came for
    a while. With `whole` nothing more is sent; it ends when each has arrived."""
    numbers, more = [], 0
    with bed.socket(RIGHT, socket.AF_INET, socket.SOCK_DGRAM) as receiver, \
            bed.socket(LEFT, socket.AF_INET, socket.SOCK_DGRAM) as sender:
        receiver.settimeout(0.5)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        receiver.bind((ADDRESS[RIGHT], 0))
        sender.connect(receiver.getsockname())
        if no_discovery:
            sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
        if segment:
            sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, length)
        for first in range(0, count, AT_ONCE):
            part = range(first, min(first + AT_ONCE, count))
            pieces = [struct.pack("!I", number) + body(number, length) for number in part]
            step = segment or 1
            for at in range(0, len(pieces), step):
                sender.send(b"".join(pieces[at:at + step]))
            arrived, last = receive_part(receiver, sender, part, length, whole)
            numbers += arrived
            more += last
    return numbers, more


def receive_part(receiver, sender, part, length, whole):
    """Receives what arrives of the datagrams of these numbers; how many more were sent for that."""
    numbers, missing, last = [], set(part), b"last of %d" % part.stop
    deadline = time.monotonic() + PATIENCE
    for sent in itertools.count(0 if whole else 1):
        if not whole:
            sender.send(last)
        try:
            while missing or not whole:
                datagram = receiver.recv(65536)
                if datagram == last:
                    return numbers, sent
                number, = struct.unpack("!I", datagram[:4])
                if number in part:
                    assert datagram[4:] == body(number, length), "damaged"
                    numbers.append(number)
                    missing.discard(number)
            return numbers, 0
        except TimeoutError:
            assert time.monotonic() < deadline, f"{len(numbers)} arrived, and nothing more comes"


def body(number, length):
    return bytes((number + at) & 0xFF for at in range(length - 4))
