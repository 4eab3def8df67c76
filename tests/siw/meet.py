"""How a cell is carried out: its two ends, one in the guest over siw and one here under weft, and the capture."""

import os
import signal
import sys
import time
from pathlib import Path

import wire
from matrix import SIW, WEFT
from machine import ADAPTER, BITS, GUEST, HOST

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import checks  # noqa: E402
from process import Process, be_everywhere, until  # noqa: E402

START = 25.0  # seconds a server has to listen; the guest is slow
GRACE = 15.0  # seconds one end has after the other's
COPIED_OCTETS = 3_000_001  # of a file that a cell copies


class Trouble(Exception):
    """A cell cannot go on; says why."""


class Stuck(Exception):
    """A program in the guest hangs in the kernel: the guest is of no further use."""


class Here:
    """A program under weft on this machine, in the link's namespace."""

    def __init__(self, meeting, argv, role):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        environment |= {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent", **meeting.cell.settings}
        options, address = [], None
        if meeting.cell.adapter:
            options = ["--adapter=inline", "--interface=packet:tap0", f"--address={ADAPTER}/{BITS}"]
            # At all addresses the kernel has the port as well, which shows that the server listens.
            address = "0.0.0.0" if role == "server" else None
        command = [*meeting.link.enter, str(meeting.weft), "run", *options, "--", *meeting.own(argv, address=address)]
        self.process = Process(command, environment, f"{meeting.log}.{role}")

    def ended(self):
        return self.process.result() if self.process.ended() else None

    def listens(self, port):
        until(lambda: self.process.ended() or self.process.listens(port), START)
        return not self.process.ended() and self.process.listens(port)

    def stop(self):
        self.process.end(0.5)
        return self.process.result()


class There:
    """A program in the guest, over siw. `role` is the shell it runs in."""

    def __init__(self, meeting, argv, role):
        self.machine, self.shell, self.log = meeting.machine, meeting.machine.shells[role], f"{meeting.log}.{role}.out"
        self.program, self.result = argv[0], None
        preload = f"LD_PRELOAD={meeting.cell.guest_preload} " if meeting.cell.guest_preload else ""
        self.shell.start(preload + " ".join(meeting.own(argv, "/mnt")))

    def ended(self):
        if self.result is None:
            self.result = self.shell.poll()
            if self.result:
                Path(self.log).write_text(self.result.output, encoding="utf-8")
        return self.result

    def listens(self, port):
        return self.machine.listens(port, START)

    def stop(self):
        if not self.ended():
            self.machine.end_programs(self.program)
            until(self.ended, GRACE)
        if not self.ended():
            raise Stuck(f"{self.program} in the guest cannot be ended")
        return self.result


class Capture:
    """What crosses the link on one port, until it is read."""

    def __init__(self, link, port, file):
        self.file = Path(f"{file}.pcap")
        self.process = Process(
            [*link.enter, "tcpdump", "--immediate-mode", "-U", "-s", "0", "-B", "32768", "-i", "tap0", "-w", self.file,
             f"tcp port {port}"], dict(os.environ), f"{file}.tcpdump")
        ready = Path(f"{file}.tcpdump.err")
        if not until(lambda: "listening on" in ready.read_text(), START):
            raise Trouble("tcpdump does not listen")

    def connections(self):
        self.settle()
        self.process.signal(signal.SIGINT)
        self.process.wait(GRACE)
        return wire.connections(self.file.read_bytes())

    def settle(self):
        """Waits until nothing more is written for a while, in many looks, between which every CPU ran something: tcpdump
        may not have come to the last of it."""
        looks, size = 0, -1
        deadline = time.monotonic() + GRACE
        while looks < 10 and time.monotonic() < deadline:
            time.sleep(0.03)
            be_everywhere()
            looks, size = (looks + 1, size) if self.file.stat().st_size == size else (0, self.file.stat().st_size)

    def stop(self):
        self.process.stop()


class Meeting:
    """One cell: starts its ends, and stops them whatever happens."""

    def __init__(self, cell, link, machine, weft, port, log):
        self.cell, self.link, self.machine, self.weft, self.port, self.log = cell, link, machine, weft, port, log
        self.slack = machine.slack()
        self.started, self.capture = [], None
        self.file, self.copy = machine.share / "file", machine.share / "copy"
        if cell.copies:
            self.file.write_bytes(os.urandom(COPIED_OCTETS))

    def own(self, argv, folder=None, address=None):
        """Fills in the arguments; programs of our own are in the shared folder."""
        here = ADAPTER if self.cell.adapter else HOST
        address = address or (GUEST if self.cell.client == WEFT else here)
        # The guest cannot map a file of the shared folder to write to it.
        copy = self.copy if self.cell.client == SIW else "/tmp/copy"
        names = {"file": f"{folder or self.machine.share}/{self.file.name}", "copy": copy}
        argv = [word.format(address=address, port=self.port, **names) for word in argv]
        if (self.machine.share / argv[0]).exists():
            argv[0] = f"{folder or self.machine.share}/{argv[0]}"
        return argv

    def start(self, role, argv):
        over_siw = (role == "client") == (self.cell.client == SIW)
        end = (There if over_siw else Here)(self, argv, role)
        self.started.append(end)
        return end

    def run(self, keep_capture=False):
        """Carries the cell out; returns (complaint or None, figure or None)."""
        capture = Capture(self.link, self.port, self.log) if self.cell.shown or keep_capture else None
        self.capture = capture
        try:
            complaint, figure = self.ends()
            if complaint is None and self.cell.shown:
                complaint = self.cell.shown(capture.connections())
            return complaint, figure
        except (Trouble, wire.Malformed) as trouble:
            return str(trouble), None
        finally:
            # A program in the guest that cannot be stopped leaves no capture running.
            if capture:
                capture.stop()
            # The end here first: the one there may wait for it.
            for end in sorted(self.started, key=lambda end: isinstance(end, There)):
                end.stop()

    def ends(self):
        server = self.start("server", self.cell.server_argv)
        if not server.listens(self.port):
            ended = server.ended()
            said = f"{ended.how()}{checks.quoted(ended.last_line())}" if ended else "not listening"
            raise Trouble(f"server: {said}")
        for number in range(1, self.cell.rounds + 1):
            client = self.start("client", self.cell.client_argv)
            self.await_client(client, server, number)
            self.started.remove(client)
            if self.cell.rounds > 1:
                complaint = self.cell.check(None, client.ended()) or self.compare()
                if complaint:
                    return f"round {number}: {complaint}", None
        if self.cell.rounds == 1:
            until(server.ended, GRACE if client.ended().status == 0 else 1.0)
        ended = server.ended() or server.stop()
        return self.cell.check(ended, client.ended()), checks.figure(self.cell, client.ended())

    def compare(self):
        """What is wrong with the copy of a round, if there is to be one."""
        if not self.cell.copies:
            return None
        if self.cell.client == WEFT:
            self.machine.fetch("/tmp/copy", self.copy.name)
        if not self.copy.exists():
            return "there is no copy"
        is_same = self.copy.read_bytes() == self.file.read_bytes()
        self.copy.unlink()
        return None if is_same else "the copy is not what was copied"

    def await_client(self, client, server, number):
        """Waits for the client's end; a server that has failed leaves a client that can only wait."""
        until(lambda: client.ended() or (self.cell.rounds == 1 and server.ended()), self.cell.timeout * self.slack)
        if not client.ended():
            until(client.ended, GRACE if server.ended() else 0)
        if not client.ended():
            said = client.stop().last_line()
            server_said = server.ended() or server.stop()
            raise Trouble(f"round {number}: client did not end{checks.quoted(said)}; "
                          f"server{checks.quoted(server_said.last_line())}")
