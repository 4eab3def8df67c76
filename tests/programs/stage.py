"""Where the cells are played: a copy of weft that every user can read, the users, the networks, free ports."""

import itertools
import os
import random
import resource
import secrets
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

NOBODY = 65534
MEMLOCK = 8 << 20  # octets: what an ordinary user has by default
SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"
# Programs of our own, compiled when they are first needed: the compiler, and what it links.
VERBS = ("cc", "-lrdmacm", "-libverbs")
OWN = {"churn": VERBS, "meet": VERBS, "mpi_check": ("mpicc.openmpi",)}
HEADER = Path("/usr/include/rdma/rdma_cma.h")


@dataclass(frozen=True)
class Host:
    """One end of a network."""

    prefix: tuple[str, ...]  # what puts a command there
    addresses: dict[int, str]  # by family, 4 and 6


class Loopback:
    """Both ends on this machine's loopback."""

    def __init__(self):
        host = Host((), {4: "127.0.0.1", 6: "::1"})
        self.server = self.client = host

    def close(self):
        pass


class Veth:
    """Two network namespaces of our own, joined by a veth pair with the MTU of Ethernet."""

    def __init__(self):
        # A run that was killed leaves its names behind, and process numbers come again.
        name = f"weft-{os.getpid()}-{secrets.token_hex(3)}"
        self.names = [f"{name}-{end}" for end in "ab"]
        self.hosts = []
        try:
            self.build()
        except BaseException:
            self.close()
            raise
        self.server, self.client = self.hosts

    def build(self):
        for name in self.names:
            ip("netns", "add", name)
        first, second = self.names
        ip("link", "add", "eth0", "netns", first, "type", "veth", "peer", "name", "eth0", "netns", second)
        for number, name in enumerate(self.names, start=1):
            addresses = {4: f"10.87.0.{number}", 6: f"fd87::{number}"}
            ip("-n", name, "addr", "add", f"{addresses[4]}/24", "dev", "eth0")
            ip("-n", name, "addr", "add", f"{addresses[6]}/64", "dev", "eth0", "nodad")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth0", "up")
            self.hosts.append(Host(("ip", "netns", "exec", name), addresses))

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


NETWORKS = {"loopback": Loopback, "veth": Veth}


def has_address(address):
    """Whether this machine has that IPv6 address; containers often have not even ::1."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


class Stage:
    """Everything a run sets up and has to take down again."""

    def __init__(self, weft):
        os.environ["PATH"] += SBIN
        self.networks = {}
        self.ports = free_ports()
        # An ordinary user may not be able to read the place where weft was built.
        self.folder = Path(tempfile.mkdtemp(prefix="weft-programs-"))
        self.folder.chmod(0o755)
        self.weft = shutil.copy(weft, self.folder)
        for library in Path(weft).resolve().parent.glob("lib*.so*"):
            shutil.copy(library, self.folder)

    def close(self):
        for network in self.networks.values():
            if not isinstance(network, str):
                network.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def network(self, name):
        """The network, built at its first use; a reason in words when it cannot be had."""
        if name not in self.networks:
            try:
                self.networks[name] = NETWORKS[name]()
            except OSError as error:
                self.networks[name] = f"no network namespaces: {error}"
        return self.networks[name]

    def obstacle(self, case, place):
        """Why this cell cannot be played here, or None."""
        if case.program not in OWN and not shutil.which(case.program):
            return f"{case.program} is not installed"
        for own in OWN.keys() & set(case.server):
            missing = self.build(own)
            if missing:
                return missing
        if place.user == "root" and os.geteuid() != 0:
            return "needs root"
        if place.user == "ordinary" and os.geteuid() == 0 and not shutil.which("setpriv"):
            return "setpriv is not installed"
        if place.network == "veth" and os.geteuid() != 0:
            return "network namespaces need root"
        network = self.network(place.network)
        if isinstance(network, str):
            return network
        if case.family == 6 and place.network == "loopback" and not has_address("::1"):
            return "loopback has no IPv6 address"
        return None

    def build(self, program):
        """Compiles a program of our own; says what is missing when it cannot be."""
        binary = self.folder / program
        if binary.exists():
            return None
        compiler, *libraries = OWN[program]
        if not shutil.which(compiler) or (libraries and not HEADER.exists()):
            return f"needs {compiler}{' and librdmacm-dev' if libraries else ''}"
        source = Path(__file__).with_name(f"{program}.c")
        subprocess.run([compiler, "-O1", "-o", binary, source, *libraries], check=True)
        return None

    def command(self, host, place, argv):
        """The whole command line that runs `argv` under weft on a host, as the place's user."""
        user = ()
        if place.user == "ordinary" and os.geteuid() == 0:
            user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        words = [str(self.folder / word) if word in OWN else word for word in argv]
        return [*host.prefix, *user, str(self.weft), "run", "--", *words]

    @staticmethod
    def environment(place):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        # No weft.toml of whoever runs the tests.
        nowhere = {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}
        return {**kept, **nowhere, "WEFT_CRC": place.crc}

    @staticmethod
    def limits(place):
        """What to do in a new process before it becomes the program: give it an ordinary user's limits."""
        if place.user == "root":
            return None
        hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        memlock = MEMLOCK if hard == resource.RLIM_INFINITY else min(MEMLOCK, hard)
        return lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (memlock, memlock))

    def free_port(self):
        """A port that nothing on this machine has."""
        return next(self.ports)


def free_ports():
    """TCP ports that nothing on this machine has when they are asked for, below the range the kernel hands out. They begin
    anywhere: another run may go on beside this one."""
    first, count = 20000, 10000
    start = random.randrange(count)
    return (port for at in itertools.count(start) if is_free(port := first + at % count))


def is_free(port):
    """Whether a server could have that TCP port, of IPv4 and, where there is one, of IPv6."""
    family, everywhere = (socket.AF_INET6, "::") if has_address("::") else (socket.AF_INET, "")
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((everywhere, port))
        except OSError:
            return False
    return True
