"""Where a program runs: hooks before it, a folder of its own, contents compared."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
from network import free_ports, is_free  # noqa: E402
from process import Process, listens  # noqa: E402

# What is under the server and under the client. The first rule names no socket of theirs: hooks alone.
PASS, GSO = {"WEFT_UDP": "gso port=1"}, {"WEFT_UDP": "gso"}
UOE = {"WEFT_UDP": "uoe prefer"}
REQUIRE, PREFER = {"WEFT_DDP": "require"}, {"WEFT_DDP": "prefer"}
MODES = {"pass": (PASS, PASS), "both": (GSO, GSO), "server": (GSO, None), "client": (None, GSO),
         "uoe": (UOE, UOE), "uoe-server": (UOE, None), "uoe-client": (None, UOE),
         "ddp": (REQUIRE, REQUIRE), "ddp-server": ({"WEFT_DDP": "require direction=listen"}, None),
         "prefer": (PREFER, PREFER), "prefer-client": (None, PREFER)}
# Of programs that are about datagrams first, and about streams.
OF_KIND = {"datagrams": ("pass", "both", "server", "client", "uoe", "uoe-server", "uoe-client"),
           "streams": ("pass", "both", "ddp", "ddp-server", "prefer", "prefer-client")}
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin:/usr/local/sbin:/usr/local/go/bin"
SAID = re.compile(r"weft: info: .*: (\d+) datagrams left in \d+ sends, (\d+) were split")
SAID_OF_CARRIERS = re.compile(r"weft: info: .*: \d+ datagrams left over \d+ connections of Weft's, (\d+) came")
SAID_OF_DDP = re.compile(r"weft: info: .*: TCP sockets looked after: \d+; DDP on (\d+)")


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
        self.server, self.client = ({**hooked, **rule} if rule else self.plain for rule in MODES[mode])
        self.ports = free_ports()
        self.started = []
        # What the programs themselves say of datagrams gathered and split.
        self.said = ""

    @staticmethod
    def need(*names):
        for name in names:
            if not shutil.which(name, path=PATH):
                raise Skip(f"{name} is not installed")

    def port(self):
        """A port that nobody has, of TCP and of UDP: some servers take both."""
        return next(port for port in self.ports if is_free(port, datagrams=True))

    def start(self, *command, user=None, environment=None, stdin=subprocess.DEVNULL):
        """Starts a server; with `environment` another program."""
        command = [str(word) for word in command]
        if user and os.geteuid() == 0:
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command]
        process = Process(command, environment or self.server, self.folder / f"log{len(self.started)}", cwd=self.folder,
                          stdin=stdin)
        self.started.append(process)
        return process

    def well(self, process, seconds=30):
        """Waits for a program to end by itself, and well."""
        assert process.wait(seconds), f"{process.name} does not end: {self.logs()}"
        assert process.result().status == 0, f"{process.name}: {process.result().how()}: {self.logs()}"

    def run(self, *command, timeout=60, check=True, text=None):
        """Runs a client to its end; what it prints."""
        command = [str(word) for word in command]
        done = subprocess.run(command, env=self.client, cwd=self.folder, input=text, timeout=timeout,
                              capture_output=True, text=True)
        self.said += done.stderr
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def bound(self, port, protocol="tcp", seconds=30):
        """Waits until a socket has the port; it is not connected to."""
        deadline = time.monotonic() + seconds
        while not listens(port, protocol == "udp"):
            for process in self.started:
                assert not process.ended() or process.result().status == 0, \
                    f"{process.name}: {process.result().how()}: {self.logs()}"
            assert time.monotonic() < deadline, f"nothing has {protocol} port {port}: {self.logs()}"
            time.sleep(0.02)

    def logs(self, whole=False):
        texts = (path.read_text(errors="replace") for path in sorted(self.folder.glob("log*")))
        return "\n".join(text[0 if whole else -1500:] for text in texts)

    def data(self, name, octets):
        path = self.folder / name
        path.write_bytes(os.urandom(octets))
        return path

    def end(self):
        for process in self.started:
            process.signal(signal.SIGTERM)
        for process in self.started:
            process.end(10)
        self.said += self.logs(whole=True)

    def counts(self):
        """What the programs that ended by themselves say: datagrams that left many in a call, those that were taken
        from the kernel many at once, those that came over carriers, ends of connections over DDP."""
        found = SAID.findall(self.said)
        datagrams = (sum(int(count[side]) for count in found) for side in (0, 1))
        others = (sum(map(int, of.findall(self.said))) for of in (SAID_OF_CARRIERS, SAID_OF_DDP))
        return *datagrams, *others


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def same(a, b):
    assert digest(a) == digest(b), f"{a} and {b} differ"


PROGRAMS = {}


def program(title, core=False, what="", without=()):
    """Enters a program. `core`: in every test run; `what`: what is compared, for the table; `without`: modes that have
    nothing to ask."""
    def add(function):
        modes = tuple(mode for mode in OF_KIND[function.__module__] if mode not in without)
        PROGRAMS[title] = (function, core, what, modes)
        return function
    return add
