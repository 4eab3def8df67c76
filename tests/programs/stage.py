"""Where the cells are played: a copy of weft that every user can read, the users, the networks, free ports."""

import fcntl
import os
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
from network import Namespaces, free_ports, has_address  # noqa: E402

NOBODY = 65534
MEMLOCK = 8 << 20  # octets: what an ordinary user has by default
SIOCGIFADDR = 0x8915  # the request for an interface's IPv4 address
SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"
# Programs of our own, compiled when they are first needed: the compiler, and what it links. The source is named like
# the program up to a dot.
VERBS = ("cc", "-lrdmacm", "-libverbs")
OWN = {"churn": VERBS, "meet": VERBS, "workers": VERBS, "mpi_check": ("mpicc.openmpi",),
       "mpi_check.mpich": ("mpicc.mpich",)}
# Scripts of our own, by the module that they need of the system's Python: only that one has Debian's modules.
SCRIPTS = {"forkpool.py": "pyverbs"}
PYTHON = "/usr/bin/python3"
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
        # A device is not found by a loopback address, unless the machine has no other.
        self.interface, self.reached = own_interface()

    def close(self):
        pass


class Veth:
    """Two network namespaces of our own, joined by a veth pair with the MTU of Ethernet."""

    def __init__(self):
        self.namespaces = Namespaces()
        try:
            ends = [self.namespaces.add(end) for end in "ab"]
            self.namespaces.join(*ends)
            hosts = []
            for number, end in enumerate(ends, start=1):
                addresses = {4: f"10.87.0.{number}", 6: f"fd87::{number}"}
                end.up("eth0", f"{addresses[4]}/24", f"{addresses[6]}/64")
                hosts.append(Host(end.enter, addresses))
        except BaseException:
            self.close()
            raise
        self.server, self.client = hosts
        self.interface, self.reached = "eth0", self.server.addresses[4]

    def close(self):
        self.namespaces.close()


NETWORKS = {"loopback": Loopback, "veth": Veth}


def own_interface():
    """The name of an interface by which others could reach this machine, and its IPv4 address; the loopback's if there is
    none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            if name == "lo":
                continue
            try:
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("16s16x", name.encode()))
            except OSError:
                continue
            return name, socket.inet_ntoa(answer[20:24])
    return "lo", "127.0.0.1"


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

    def shared_folder(self):
        """A folder that every user can write to."""
        folder = self.folder / "shared"
        if not folder.exists():
            folder.mkdir()
            folder.chmod(0o777)
        return folder

    def dat_conf(self, name):
        """A file that tells uDAPL of the device, on that network."""
        path = self.folder / f"dat-{name}.conf"
        rows = (("cma", "ofa", f"{self.network(name).interface} 0"), ("scm", "oscm", "weft0 1"))
        path.write_text("".join(
            f'{provider} u2.0 nonthreadsafe default libdapl{library}.so.2 dapl.2.0 "{device}" ""\n'
            for provider, library, device in rows
        ))
        return path

    def obstacle(self, case, place):
        """Why this cell cannot be played here, or None."""
        if case.program not in OWN | SCRIPTS and not shutil.which(case.program):
            return f"{case.program} is not installed"
        for own in (OWN | SCRIPTS).keys() & set(case.server):
            missing = self.bring(own) if own in SCRIPTS else self.build(own)
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
        source = Path(__file__).with_name(f"{program.partition('.')[0]}.c")
        done = subprocess.run([compiler, "-O1", "-o", binary, source, *libraries], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()
            return f"{compiler} does not compile {source.name}: {said[0] if said else f'exit status {done.returncode}'}"
        return None

    def launcher(self, name):
        """A program that starts a command on a host of that network, by its address, in an environment that is not that of
        who calls it: as a login on another machine, it has the libraries of neither."""
        network = self.network(name)
        script = self.folder / f"start-on-{name}"
        lines = ["#!/bin/sh", "# ADDRESS COMMAND...", "case $1 in"]
        for host in (network.server, network.client):
            lines.append(f"{'|'.join(host.addresses.values())}) set -- \"{' '.join(host.prefix)}\" \"$@\" ;;")
        lines += ["*) echo \"no host has the address $1\" >&2; exit 1 ;;", "esac", "prefix=$1; shift 2",
                  "exec $prefix env -u LD_PRELOAD -u LD_LIBRARY_PATH sh -c \"$*\""]
        script.write_text("\n".join(lines) + "\n", encoding="utf-8")
        script.chmod(0o755)
        return script

    def bring(self, script):
        """Copies a script of our own to where every user can read it; says what is missing when it cannot run."""
        module = SCRIPTS[script]
        there = Path(PYTHON).exists() and subprocess.run([PYTHON, "-c", f"import {module}"], check=False,
                                                         stderr=subprocess.DEVNULL, cwd="/").returncode == 0
        if not there:
            return f"needs {PYTHON} with {module} (python3-{module})"
        shutil.copy(Path(__file__).with_name(script), self.folder)
        return None

    def command(self, host, place, argv):
        """The whole command line that runs `argv` under weft on a host, as the place's user."""
        user = ()
        if place.user == "ordinary" and os.geteuid() == 0:
            user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        words = [str(self.folder / word) if word in OWN | SCRIPTS else word for word in argv]
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
