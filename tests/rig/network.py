"""Networks of our own: namespaces, veth pairs between them, and ports that nobody has."""

import itertools
import os
import random
import secrets
import shutil
import socket
import subprocess
import sys


def ip(*words):
    """Runs `ip` with these words; an OSError in its words when it fails."""
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")


def enter(inside, users=()):
    """Runs this program again in namespaces of its own, with the argument `inside`; why not, if that is not allowed.

    In a user namespace of its own it is root, and there is nobody else; who may act as all of `users` gets none."""
    apart = ["--net", "--mount", "--"]
    ways = [["unshare", "--user", "--map-root-user", *apart]]
    if users and all(may_act_as(user) for user in users):
        ways.insert(0, ["unshare", *apart])
    for words in ways:
        tried = subprocess.run([*words, "true"], capture_output=True, text=True)
        if not tried.returncode:
            os.execvp(words[0], [*words, sys.executable, *sys.argv, inside])
    return f"no namespaces to be had: {tried.stderr.strip()}"


def acting_as(user):
    """What stands before the words of a command that is to be another user's, by number."""
    return "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"


def may_act_as(user, command=("true",)):
    """Whether this user may run that command as another one, who can run it."""
    try:
        return subprocess.run([*acting_as(user), *map(str, command)], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


class Namespace:
    """A network namespace. `enter` stands before the words of a command that is to run there."""

    def __init__(self, name):
        self.name = name
        self.enter = ("ip", "netns", "exec", name)
        ip("netns", "add", name)

    def up(self, device, *addresses):
        """Gives a device these addresses, with their prefixes, and sets it up."""
        for address in addresses:
            # An IPv6 address serves at once: there is nobody who could have the same.
            ip("-n", self.name, "address", "add", address, "dev", device, *["nodad"] * (":" in address))
        ip("-n", self.name, "link", "set", "dev", device, "up")


class Namespaces:
    """Namespaces that go with this object, with what is in them."""

    def __init__(self):
        # A run that was killed leaves its names behind, and process numbers come again.
        self.prefix = f"weft-{os.getpid()}-{secrets.token_hex(3)}"
        self.all = []

    def add(self, label):
        namespace = Namespace(f"{self.prefix}-{label}")
        self.all.append(namespace)
        namespace.up("lo")
        return namespace

    @staticmethod
    def join(one, other, here="eth0", there="eth0"):
        """A veth pair, with the MTU of Ethernet, between devices of these names in two namespaces; both are down."""
        ip("link", "add", here, "netns", one.name, "type", "veth", "peer", "name", there, "netns", other.name)

    def close(self):
        for namespace in self.all:
            subprocess.run(["ip", "netns", "delete", namespace.name], check=False, stderr=subprocess.DEVNULL)
        self.all = []


def may_have_namespaces():
    """Whether this user, here, may make a namespace and enter it."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    namespaces = Namespaces()
    try:
        probe = namespaces.add("probe")
        return subprocess.run([*probe.enter, "true"], check=False, capture_output=True).returncode == 0
    except OSError:
        return False
    finally:
        namespaces.close()


def has_address(address):
    """Whether this machine has that IPv6 address; containers often have not even ::1."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def free_ports():
    """TCP ports that nothing on this machine has when they are asked for, below the range the kernel hands out. They
    begin anywhere: another run may go on beside this one."""
    first, count = 20000, 10000
    start = random.randrange(count)
    return (port for at in itertools.count(start) if is_free(port := first + at % count))


def is_free(port, datagrams=False):
    """Whether a server could have that port, of TCP or UDP, of IPv4 and, where there is one, of IPv6."""
    family, everywhere = (socket.AF_INET6, "::") if has_address("::") else (socket.AF_INET, "")
    with socket.socket(family, socket.SOCK_DGRAM if datagrams else socket.SOCK_STREAM) as probe:
        if not datagrams:
            # Connections that are over keep it from nobody.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((everywhere, port))
        except OSError:
            return False
    return True
