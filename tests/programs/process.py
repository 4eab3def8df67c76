"""A program under test as a process of its own session, its output in files."""

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

POLL = 0.02  # seconds between looks at a process
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


class Process:
    """A started program. Its whole session dies with `stop`."""

    def __init__(self, argv, environment, log, before=None):
        self.log = Path(log)

        def prepare():
            # A run in the background of a shell has SIGINT ignored, and programs would inherit that.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if before:
                before()

        with open(f"{log}.out", "wb") as out, open(f"{log}.err", "wb") as err:
            self.child = subprocess.Popen(
                argv, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=out, stderr=err,
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

    def stop(self):
        self.signal(signal.SIGKILL)
        self.child.wait()

    def result(self):
        """How it ended; call after the end."""
        texts = [Path(f"{self.log}.{kind}").read_text(errors="replace") for kind in ("out", "err")]
        return Ended(self.child.returncode, *texts)

    def listens(self, port, datagrams=False):
        """Whether a TCP socket listens on that port in the network the process is in, or a UDP one has it."""
        if datagrams:
            return any(local == port for local, _, _ in self.sockets(("udp", "udp6")))
        return any(state == LISTEN and local == port for local, _, state in self.sockets())

    def connections(self, port):
        """How many TCP connections to that port there are in the network the process is in."""
        return sum(state == ESTABLISHED and remote == port for _, remote, state in self.sockets())

    def sockets(self, families=("tcp", "tcp6")):
        """Local port, remote port and state of each socket there."""
        for family in families:
            try:
                rows = Path(f"/proc/{self.child.pid}/net/{family}").read_text().splitlines()[1:]
            except OSError:
                continue
            for row in rows:
                _, local, remote, state = row.split()[:4]
                yield int(local[-4:], 16), int(remote[-4:], 16), state


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
