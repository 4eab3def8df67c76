"""Programs as processes: one that is started, looked at and ended, and one that is told lines and answers them."""

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

POLL = 0.02  # seconds between looks at a process
ANSWER = 60  # seconds: nothing that a program is asked for takes longer, unless it says so
PR_SET_PDEATHSIG = 1  # linux/prctl.h
ESTABLISHED, LISTEN = "01", "0A"  # states in /proc/PID/net/tcp


@dataclass(frozen=True)
class Ended:
    """How a program ended and what it said."""

    status: int  # as subprocess has it: negative for a signal
    output: str
    errors: str

    def how(self):
        if self.status >= 0:
            return f"exit status {self.status}"
        return f"ended by {signal.Signals(-self.status).name}"

    def last_line(self):
        lines = (self.output + self.errors).strip().splitlines()
        return lines[-1].strip() if lines else ""


class Failed(Exception):
    """A program ended, or said something else than it should."""


class Process:
    """A started program, in a session of its own, its output in the files LOG.out and LOG.err. The whole session dies
    with `stop`."""

    def __init__(self, argv, environment, log, before=None, cwd="/", stdin=subprocess.DEVNULL):
        self.name, self.log = Path(argv[0]).name, Path(log)

        def prepare():
            # A run in the background of a shell has SIGINT ignored, and programs would inherit that.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if before:
                before()

        with open(f"{log}.out", "wb") as out, open(f"{log}.err", "wb") as err:
            self.child = subprocess.Popen(
                argv, env=environment, cwd=cwd, stdin=stdin, stdout=out, stderr=err,
                start_new_session=True, preexec_fn=prepare,
            )

    def wait(self, seconds):
        """Waits for the end; False when the time is up."""
        try:
            self.child.wait(max(seconds, 0))
            return True
        except subprocess.TimeoutExpired:
            return False

    def wait_awake(self, seconds):
        """The same, in seconds of a machine that runs: a look is over when every CPU has come to it in between, so that
        one passes while a CPU stands still, on which the program may be."""
        for _ in range(int(seconds / POLL)):
            if self.wait(POLL):
                return True
            be_everywhere()
        return self.ended()

    def ended(self):
        return self.child.poll() is not None

    def signal(self, number):
        """Signals the whole session, as a terminal does."""
        try:
            os.killpg(self.child.pid, number)
        except ProcessLookupError:
            pass

    def end(self, seconds):
        """Ends it with SIGTERM, and with SIGKILL what is still there after so long."""
        self.signal(signal.SIGTERM)
        self.wait(seconds)
        self.stop()

    def stop(self):
        self.signal(signal.SIGKILL)
        self.child.wait()

    def result(self):
        """How it ended; call after the end."""
        texts = [Path(f"{self.log}.{kind}").read_text(errors="replace") for kind in ("out", "err")]
        return Ended(self.child.returncode, *texts)

    def listens(self, port, datagrams=False):
        """Whether somebody listens on that port in the network the process is in."""
        return listens(port, datagrams, self.child.pid)

    def await_port(self, port, datagrams=False, seconds=30):
        """Waits until somebody has that port in the network the process is in; `Failed` when it ends before that, or nobody
        has."""
        if not until(lambda: self.ended() or self.listens(port, datagrams), seconds) or self.ended():
            how = self.result().how() if self.ended() else f"nothing has port {port}"
            raise Failed(f"{self.name}: {how}\n{self.result().errors}")

    def connections(self, port):
        """How many TCP connections to that port there are in the network the process is in."""
        return sum(state == ESTABLISHED and remote == port for _, remote, state in sockets(self.child.pid))


class Talker:
    """A program that is told lines and answers each with a line of JSON. It ends when this process does.

    `core`: the CPU it has to itself; `files`: its limits on descriptors, soft and hard; `errors`: where its standard
    error goes, else into a file of its own."""

    def __init__(self, command, core=None, files=None, errors=None):
        def before():
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if core is not None:
                os.sched_setaffinity(0, {core})
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, files)
        self.command = [str(word) for word in command]
        self.errors = errors or tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(self.command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, preexec_fn=before)
        self.unread = b""  # what it said behind the last line that was heard
        self.pid = self.process.pid

    def tell(self, line):
        try:
            self.process.stdin.write(f"{line}\n".encode())
        except BrokenPipeError:
            pass  # what it died of is heard

    def hear(self, seconds=ANSWER):
        """The next line it says."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.unread:
            said, _, _ = select.select([self.process.stdout], [], [], max(deadline - time.monotonic(), 0))
            octets = os.read(self.process.stdout.fileno(), 65536) if said else b""
            if not octets:
                if said:
                    self.reap(seconds)  # its output is closed, and it may still be ending
                raise Failed(self.last_words(seconds))
            self.unread += octets
        line, _, self.unread = self.unread.partition(b"\n")
        return json.loads(line)

    def reap(self, seconds):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass  # it is told of as silent

    def ask(self, line, seconds=ANSWER):
        self.tell(line)
        return self.hear(seconds)

    def end(self):
        """Closes its input; what it says last, if anything."""
        try:
            rest, _ = self.process.communicate(timeout=ANSWER)
        except subprocess.TimeoutExpired:
            raise Failed(self.last_words(ANSWER)) from None
        if self.process.returncode:
            raise Failed(self.last_words(ANSWER))
        last = (self.unread + rest).strip()
        return json.loads(last) if last else None

    def last_words(self, seconds):
        running = self.process.poll() is None
        self.process.kill()
        self.process.wait()
        self.errors.seek(0)
        errors = self.errors.read().strip()[-600:]
        how = f"silent for {seconds:g} s" if running else f"exit status {self.process.returncode}"
        return f"{' '.join(self.command)}: {how}. {errors}"

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
            pipe.close()


def sockets(pid="self", families=("tcp", "tcp6")):
    """Local port, remote port and state of each socket in the network that a process is in."""
    for family in families:
        try:
            rows = Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            _, local, remote, state = row.split()[:4]
            yield int(local[-4:], 16), int(remote[-4:], 16), state


def listens(port, datagrams=False, pid="self"):
    """Whether a TCP socket listens on that port in the network that a process is in, or a UDP one has it. It is not
    connected to: some servers serve one client only."""
    if datagrams:
        return any(local == port for local, _, _ in sockets(pid, ("udp", "udp6")))
    return any(state == LISTEN and local == port for local, _, state in sockets(pid))


def be_everywhere():
    """Runs on each CPU in turn."""
    allowed = os.sched_getaffinity(0)
    try:
        for cpu in allowed:
            os.sched_setaffinity(0, {cpu})
    finally:
        os.sched_setaffinity(0, allowed)


def until(condition, seconds):
    """Polls `condition`; False when the time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True
