"""How a case is carried out. Each kind returns (complaint or None, figure or None)."""

import signal
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import checks  # noqa: E402
from network import is_free  # noqa: E402
from process import Process, until  # noqa: E402

START = 30.0  # seconds a server has to listen, and a client to connect
GRACE = 30.0  # seconds the server has after the client's end
HEAD_START = 0.5  # seconds that a client waits for its server
MIDWAY = 0.7  # seconds of traffic before an end is made to go away
NOTICE = 1.0  # seconds, of a machine that runs, in which the other end has to notice
NOTICE_KILL = 2.0
DEATH = 15.0  # seconds in which a signalled process has to be gone; a loaded machine takes its time


class Trouble(Exception):
    """A cell cannot go on; says why."""


class Play:
    """One cell on the stage: starts its processes, and stops them whatever happens."""

    def __init__(self, stage, case, place, log):
        self.stage, self.case, self.place, self.log = stage, case, place, log
        self.network = stage.network(place.network)
        self.dat_conf = stage.dat_conf(place.network)
        self.port = case.port or stage.free_port()
        self.copy = stage.shared_folder() / Path(log).name  # of a file, made by either user
        self.started = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.started:
            process.stop()
        self.copy.unlink(missing_ok=True)

    def run(self):
        try:
            return KINDS[self.case.kind](self)
        except Trouble as trouble:
            return str(trouble), None

    def start(self, role, host, template):
        address, other = (end.addresses[self.case.family] for end in (self.network.server, self.network.client))
        filled = {"address": address, "other": other, "port": self.port, "weft": self.stage.weft,
                  "reached": self.network.reached, "dat_conf": self.dat_conf, "copy": self.copy}
        if "{launcher}" in template:
            filled["launcher"] = self.stage.launcher(self.place.network)
        argv = [word.format(**filled) for word in template]
        process = Process(
            self.stage.command(host, self.place, argv), self.stage.environment(self.place),
            f"{self.log}.{role}", self.stage.limits(self.place),
        )
        self.started.append(process)
        return process

    def server(self):
        """Starts the server and waits until it listens."""
        if self.case.port:
            # Another run may have it, for a moment.
            until(lambda: is_free(self.case.port, self.case.datagrams), START)
        server = self.start("server", self.network.server, self.case.server)
        until(lambda: server.ended() or server.listens(self.port, self.case.datagrams), START)
        if server.ended():
            ended = server.result()
            raise Trouble(f"server: {ended.how()} before it listened{checks.quoted(ended.last_line())}")
        if not server.listens(self.port, self.case.datagrams):
            raise Trouble(f"server: not listening after {START:.0f} s")
        return server

    def client(self):
        return self.start("client", self.network.client, self.case.client)

    def both_midway(self):
        """Starts both ends and returns them in the middle of their traffic."""
        server, client = self.server(), self.client()
        if not until(lambda: client.ended() or client.connections(self.port) >= self.case.connections, START):
            raise Trouble(f"client: not connected after {START:.0f} s")
        time.sleep(MIDWAY)
        for role, process in (("server", server), ("client", client)):
            if process.ended():
                ended = process.result()
                raise Trouble(f"{role}: {ended.how()} before it was midway{checks.quoted(ended.last_line())}")
        return server, client


def single(play):
    program = play.start("program", play.network.server, play.case.server)
    if not program.wait(play.case.timeout):
        raise Trouble(f"did not end within {play.case.timeout:.0f} s")
    return play.case.check(program.result(), None), None


def pair(play):
    return played(play, play.server(), play.client())


def service(play):
    """A server that serves one client after another: it is there when the first has ended, and does not end by itself."""
    server, client = play.server(), play.client()
    until(lambda: client.ended() or server.ended(), play.case.timeout)
    if server.ended():
        ended = server.result()
        raise Trouble(f"server: {ended.how()} before its client{checks.quoted(ended.last_line())}")
    if not client.ended():
        raise Trouble(f"client: did not end within {play.case.timeout:.0f} s")
    server.signal(signal.SIGTERM)
    if not server.wait(DEATH):
        raise Trouble(f"server: did not end within {DEATH:.0f} s of SIGTERM")
    if server.result().status != -signal.SIGTERM:
        raise Trouble(f"server: {server.result().how()} when its client had ended")
    result = client.result()
    return play.case.check(server.result(), result), checks.figure(play.case, result)


def copies(play):
    """A service that copies a file, {weft}, to {copy}."""
    complaint, figure = service(play)
    if complaint:
        return complaint, None
    if not play.copy.exists() or play.copy.read_bytes() != Path(play.stage.weft).read_bytes():
        return "the copy is not what was copied", None
    return None, figure


def client_first(play):
    """For programs whose client waits until there is a server."""
    client = play.client()
    time.sleep(HEAD_START)
    return played(play, play.start("server", play.network.server, play.case.server), client)


def together(play):
    """The same, both started at once."""
    client = play.client()
    return played(play, play.start("server", play.network.server, play.case.server), client)


def again(play):
    """A pair, one time after the other."""
    for time_before in range(play.case.times):
        play.port = play.case.port or play.stage.free_port()
        try:
            complaint, _ = pair(play)
        except Trouble as trouble:
            complaint = str(trouble)
        for process in play.started:
            process.stop()
        play.started.clear()
        if complaint:
            raise Trouble(f"time {time_before + 1} of {play.case.times}: {complaint}")
    return None, {"value": play.case.times, "unit": "times"}


def played(play, server, client):
    """Both ends to their end."""
    deadline = time.monotonic() + play.case.timeout
    # A server that has failed leaves a client that can only wait.
    until(lambda: client.ended() or server.ended(), play.case.timeout)
    client.wait(min(GRACE, deadline - time.monotonic()) if server.ended() else 0)
    server.wait(GRACE)
    for role, process in (("client", client), ("server", server)):
        if not process.ended():
            process.stop()
            raise Trouble(f"{role}: did not end{checks.quoted(process.result().last_line())}")
    result = client.result()
    return play.case.check(server.result(), result), checks.figure(play.case, result)


def gone(play, leaving, number, staying, role, notice):
    """`leaving` gets a signal; once it is gone, `staying` has to end within `notice` seconds of its own accord."""
    leaving.signal(number)
    if not leaving.wait(DEATH):
        raise Trouble(f"the one that got {signal.Signals(number).name} did not end within {DEATH:.0f} s")
    start = time.monotonic()
    if not staying.wait_awake(notice):
        raise Trouble(f"{role}: did not end within {notice:.0f} s")
    took = time.monotonic() - start
    ended = staying.result()
    if ended.status in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL):
        raise Trouble(f"{role}: {ended.how()}")
    return play.case.check(ended, None), {"value": round(took * 1000), "unit": "ms to notice"}


def interrupt(play):
    server, client = play.both_midway()
    return gone(play, client, signal.SIGINT, server, "server", NOTICE)


def kill_server(play):
    server, client = play.both_midway()
    return gone(play, server, signal.SIGKILL, client, "client", NOTICE_KILL)


def kill_client(play):
    server, client = play.both_midway()
    return gone(play, client, signal.SIGKILL, server, "server", NOTICE_KILL)


KINDS = {
    "single": single,
    "pair": pair,
    "service": service,
    "copies": copies,
    "client_first": client_first,
    "together": together,
    "again": again,
    "interrupt": interrupt,
    "kill_server": kill_server,
    "kill_client": kill_client,
}
