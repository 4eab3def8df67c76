"""The two programs of a crowd, and what the kernel keeps for them."""

import json
import os
import resource
import select
import subprocess
import tempfile
from pathlib import Path

PATIENCE = 60  # seconds: nothing that a program is asked for takes that long
PAGE = os.sysconf("SC_PAGE_SIZE")


class Failed(Exception):
    """A program ended, or said something else than it should."""


class End:
    """One program: it is told lines and answers each with a line of JSON."""

    def __init__(self, command, core=None, files=None):
        def before():
            if core is not None:
                os.sched_setaffinity(0, {core})
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, files)
        self.command = command
        self.errors = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, preexec_fn=before)

    def hear(self):
        """The next line it says."""
        said, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline() if said else ""
        if not line:
            raise Failed(self.last_words())
        return json.loads(line)

    def tell(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # what it died of is heard

    def ask(self, line):
        self.tell(line)
        return self.hear()

    def end(self):
        """Closes its input; what it says last, if anything."""
        try:
            rest, _ = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failed(self.last_words()) from None
        if self.process.returncode:
            raise Failed(self.last_words())
        return json.loads(rest) if rest.strip() else None

    def last_words(self):
        running = self.process.poll() is None
        self.process.kill()
        self.process.wait()
        self.errors.seek(0)
        errors = self.errors.read().strip()[-600:]
        how = f"silent for {PATIENCE} s" if running else f"exit status {self.process.returncode}"
        return f"{' '.join(map(str, self.command))}: {how}. {errors}"

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
            pipe.close()


class Pair:
    """A server and a client with `count` connections between them. `launch` stands before the programs' names."""

    def __init__(self, program, launch, by, count, port, window=1, size=16384, pinned=True, files=None):
        options = ["--by", by, "--count", count, "--port", port, "--window", window, "--size", size]
        cores = sorted(os.sched_getaffinity(0))
        own, other = (cores[0], cores[1]) if pinned and len(cores) > 1 else (None, None)
        self.count = count
        self.before = kernel_memory()
        self.ends = []
        try:
            self.server = self.start([*launch, program, "--server", *options], other, files)
            self.listening = self.server.hear()
            self.client = self.start([*launch, program, *options], own, files)
            self.ready = self.client.hear()
        except BaseException:
            self.kill()
            raise

    def start(self, command, core, files):
        end = End(command, core, files)
        self.ends.append(end)
        return end

    def connect(self):
        self.client.tell("connect")
        self.connected = self.client.hear()
        self.accepted = self.server.hear()
        return self.connected

    def memory(self):
        """Octets for each connection's end that lies idle: of the process, and of the kernel (of the whole machine)."""
        own = self.connected["resident"] - self.ready["resident"]
        return {"process": own / self.count,
                "kernel": (kernel_memory() - self.before) / (2 * self.count)}

    def end(self):
        """What the server counted."""
        self.client.end()
        return self.server.end()

    def kill(self):
        for end in self.ends:
            end.kill()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def kernel_memory():
    """Octets of the kernel's that sockets take: buffers, and the objects of its slabs."""
    sockets = next(line.split() for line in Path("/proc/net/sockstat").read_text().splitlines() if line.startswith("TCP:"))
    slab = next(line.split() for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("Slab:"))
    return int(sockets[sockets.index("mem") + 1]) * PAGE + int(slab[1]) * 1024
