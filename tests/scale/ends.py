"""The two programs of a crowd, and what the kernel keeps for them."""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
from process import Talker  # noqa: E402

PAGE = os.sysconf("SC_PAGE_SIZE")


class Pair:
    """A server and a client with `count` connections between them. `launch` stands before the programs' names."""

    def __init__(self, program, launch, by, count, port, window=1, size=16384, pinned=True, files=None):
        options = ["--by", by, "--count", count, "--port", port, "--window", window, "--size", size]
        other, own = pinned and pinned_cores() or (None, None)
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
        end = Talker(command, core, files)
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


def pinned_cores():
    """The cores of server and client; None where there are not two."""
    cores = sorted(os.sched_getaffinity(0))
    return [cores[1], cores[0]] if len(cores) > 1 else None


def kernel_memory():
    """Octets of the kernel's that sockets take: buffers, and the objects of its slabs."""
    sockets = next(line.split() for line in Path("/proc/net/sockstat").read_text().splitlines() if line.startswith("TCP:"))
    slab = next(line.split() for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("Slab:"))
    return int(sockets[sockets.index("mem") + 1]) * PAGE + int(slab[1]) * 1024
