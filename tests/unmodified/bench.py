"""Where a program runs: hooks before it, a folder of its own, contents compared."""

import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
from process import listens, until  # noqa: E402

# What is under the server and under the client. The first rule names no socket of theirs: hooks alone.
PASS, GSO = "gso port=1", "gso"
MODES = {"pass": (PASS, PASS), "both": (GSO, GSO), "server": (GSO, None), "client": (None, GSO)}
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin:/usr/local/sbin:/usr/local/go/bin"
SAID = re.compile(r"weft: info: .*: (\d+) datagrams left in \d+ sends, (\d+) were split")


class Skip(Exception):
    pass


class Bench:
    """Starts programs under the hooks, in a folder of their own, and ends what it started.

    What `start` starts is the server, what `run` runs is the client: a mode says what is under each."""

    def __init__(self, library, mode, folder):
        self.folder = Path(folder)
        self.mode = mode
        self.plain = {**{k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}, "PATH": PATH}
        hooked = {**self.plain, "LD_PRELOAD": library, "WEFT_LOG": "info"}
        self.server, self.client = ({**hooked, "WEFT_UDP": rule} if rule else self.plain for rule in MODES[mode])
        self.started = []
        # What the programs themselves say of datagrams gathered and split.
        self.said = ""

    @staticmethod
    def need(*names):
        for name in names:
            if not shutil.which(name, path=PATH):
                raise Skip(f"{name} is not installed")

    @staticmethod
    def port(kind=socket.SOCK_STREAM):
        """A port that nobody has, of either kind: some servers take both, and TCP's may be held by a connection that was."""
        other = socket.SOCK_DGRAM if kind == socket.SOCK_STREAM else socket.SOCK_STREAM
        while True:
            with socket.socket(socket.AF_INET, kind) as probe, socket.socket(socket.AF_INET, other) as second:
                probe.bind(("127.0.0.1", 0))
                try:
                    second.bind(probe.getsockname())
                except OSError:
                    continue
                return probe.getsockname()[1]

    def start(self, *command, hooked=True, user=None, **options):
        command = [str(word) for word in command]
        if user and os.geteuid() == 0:
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command]
        log = open(self.folder / f"log{len(self.started)}", "w+b")
        child = subprocess.Popen(
            command, env=self.server if hooked else self.plain, cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=options.pop("stdout", log), stderr=options.pop("stderr", subprocess.STDOUT),
            start_new_session=True, **options)
        self.started.append((child, command))
        return child

    def run(self, *command, hooked=True, timeout=60, check=True, text=None):
        command = [str(word) for word in command]
        done = subprocess.run(
            command, env=self.client if hooked else self.plain, cwd=self.folder, input=text, timeout=timeout,
            capture_output=True, text=True)
        self.said += done.stderr
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def listening(self, port, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            for child, command in self.started:
                if child.poll() not in (None, 0):
                    raise AssertionError(f"{command[0]} ended with status {child.returncode}: {self.logs()}")
            time.sleep(0.05)
        raise AssertionError(f"nothing listens on {port}: {self.logs()}")

    def bound(self, port, protocol="tcp", seconds=30):
        """Waits until a socket has the port, without connecting."""
        if not until(lambda: listens(port, protocol == "udp"), seconds):
            raise AssertionError(f"nothing has {protocol} port {port}: {self.logs()}")

    def logs(self, whole=False):
        return "\n".join(p.read_text(errors="replace")[0 if whole else -1500:] for p in sorted(self.folder.glob("log*")))

    def data(self, name, octets):
        path = self.folder / name
        path.write_bytes(os.urandom(octets))
        return path

    def end(self):
        for child, _ in self.started:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGTERM)
        for child, _ in self.started:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        self.said += self.logs(whole=True)

    def counts(self):
        """Datagrams that left many in a call, and that were taken from the kernel many at once."""
        found = SAID.findall(self.said)
        return tuple(sum(int(count[side]) for count in found) for side in (0, 1))


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def same(a, b):
    assert digest(a) == digest(b), f"{a} and {b} differ"


PROGRAMS = {}


def program(title, core=False, what=""):
    """Enters a program. `core`: in every test run; `what`: what is compared, for the table."""
    def add(function):
        kind = function.__module__
        PROGRAMS[title] = (function, core, what, tuple(MODES) if kind == "datagrams" else ("pass", "both"))
        return function
    return add
