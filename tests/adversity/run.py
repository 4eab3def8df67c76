#!/usr/bin/env python3
"""Real programs on a machine that lets them down: no room on a disk, no memory, threads or descriptors to be had,
clocks that disagree, a program or a connection that is stopped midway, and (datagrams.py) a peer that sends what it
likes.

    tests/adversity/run.py --weft TARGET/release/weft [--only REGEX]

A server and a client of rping exchange verified messages; what is wrong is wrong for the server. Where they cannot go
on they have to end by themselves and say why: no end by a signal, nobody waits for ever. The last line is `N passed, N
failed, N skipped`; the exit status is 0 when nothing failed.
"""

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "tests/rig"))
import again  # noqa: E402
from counts import Counts  # noqa: E402
from network import free_ports  # noqa: E402
from process import Failed, Process, until  # noqa: E402

PATIENCE = 30.0  # seconds until both ends have to have ended
START = 10.0  # seconds a server has to listen
NOBODY = 65534
MANY = 100_000_000  # pings: more than there is time for
HALT = 3.0  # seconds that a program is stopped
# Memory that the server may have, in MiB, from too little to load libraries up to enough.
ADDRESS_SPACES = (6, 7, 8, 10, 12, 16, 20, 24, 32, 64)

# Fills what programs write to, and then becomes the program, whose own folder is seen elsewhere: it may be below one of
# those.
FULL_DISKS = """
mount --bind "$(dirname "$1")" /mnt || exit
shift
for folder in /tmp /var/tmp /dev/shm /run "$HOME"; do
    mount -t tmpfs -o size=64k none "$folder" 2>/dev/null && ! cat /dev/zero >"$folder/full" 2>/dev/null
done
exec /mnt/weft "$@"
"""


class Skipped(Exception):
    """This cannot be tried here."""


class Ends:
    """A server and a client of rping, and what they write."""

    def __init__(self, weft, port, folder):
        self.weft, self.port, self.folder = weft, port, folder
        self.started = []

    def start(self, role, pings, launcher=(), before=None):
        where = ("-a", "127.0.0.1", "-p", str(self.port), "-C", str(pings), "-V")
        argv = (*launcher, self.weft, "run", "--", "rping", "-s" if role == "server" else "-c", *where)
        process = Process(argv, dict(os.environ), self.folder / role, before)
        self.started.append(process)
        return process

    def meet(self, pings=100, launcher=(), before=None):
        """Both, with what is wrong at the server. A server that ends before it listens is left alone."""
        server = self.start("server", pings, launcher, before)
        if not until(lambda: server.listens(self.port) or server.ended(), START):
            raise Failed("server: neither listens nor ends")
        if server.ended():
            return server, None
        client = self.start("client", pings)
        return server, client

    def await_both(self, *processes):
        """How they ended; each has to, and not by a signal."""
        deadline = time.monotonic() + PATIENCE
        for process in processes:
            if not process.wait(deadline - time.monotonic()):
                raise Failed(f"{process.log.name}: does not end")
        results = [process.result() for process in processes]
        for process, ended in zip(processes, results):
            if ended.status < 0:
                raise Failed(f"{process.log.name}: {ended.how()}: {ended.last_line()}")
        return results

    def works(self, launcher=(), before=None):
        """All goes well nevertheless."""
        server, client = self.meet(launcher=launcher, before=before)
        if client is None:
            ended = server.result()
            raise Failed(f"server: {ended.how()}: {ended.last_line()}")
        for ended in self.await_both(client, server):
            if ended.status != 0:
                raise Failed(f"{ended.how()}: {ended.last_line()}")

    def is_refused(self, words, before):
        """The server does not come to listen, and Weft says why."""
        server, client = self.meet(before=before)
        if client is not None:
            raise Failed("server: listens all the same")
        ended, = self.await_both(server)
        if ended.status == 0 or words not in ended.errors:
            raise Failed(f"server: {ended.how()}: {ended.last_line()}")

    def under_way(self):
        server, client = self.meet(MANY)
        if client is None or not until(lambda: client.connections(self.port), START):
            raise Failed("no traffic")
        time.sleep(0.5)
        return server, client

    def stop(self):
        for process in self.started:
            process.stop()


# --- the cells

def limited(kind, value):
    """A limit of the process, before the program begins."""
    return lambda: resource.setrlimit(kind, (value, value))


def one_thread():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))


def needs_root():
    if os.geteuid() != 0:
        raise Skipped("needs root")


def every_disk_is_full(ends):
    needs_root()
    ends.works(("unshare", "-m", "sh", "-c", FULL_DISKS, "sh"))


def no_file_may_be_written(ends):
    """Not what rping says either, which a run keeps in files."""
    ends.works(("prlimit", "--fsize=0", "sh", "-c", 'exec "$@" >/dev/null 2>&1', "sh"))


def no_thread_is_to_be_had(ends):
    needs_root()
    ends.is_refused("threads of this user", one_thread)


def no_descriptor_is_left(ends):
    ends.is_refused("no descriptors are left", limited(resource.RLIMIT_NOFILE, 6))


def addresses_of(program):
    """Octets of addresses that its segments take."""
    listed = subprocess.run(["readelf", "--program-headers", "--wide", program], capture_output=True, text=True,
                            check=True).stdout
    loaded = [line.split() for line in listed.splitlines() if line.split()[:1] == ["LOAD"]]
    return max(int(words[2], 16) + int(words[5], 16) for words in loaded)


def little_memory(ends, size):
    """The program loads, or does not; allocates what it needs, or ends in words, its own or those of the runtime."""
    server, client = ends.meet(before=limited(resource.RLIMIT_AS, size << 20))
    if client is not None:
        ends.await_both(client, server)
        return
    ended = server.result()
    words = ("memory allocation of", "failed to allocate an alternative stack")
    if ended.status == -signal.SIGABRT and any(said in ended.errors for said in words):
        return
    # Too little for the command and the loader beside it: the kernel ends it before its first instruction.
    if ended.status == -signal.SIGSEGV and size << 20 < addresses_of(ends.weft) + (1 << 20):
        return
    if ended.status <= 0:
        raise Failed(f"server: {ended.how()}: {ended.last_line()}")


def clocks_disagree(ends, by):
    needs_root()
    ends.works(("unshare", "-T", "--monotonic", str(by), "--boottime", str(by)))


def stopped_for_a_while(ends, role):
    """Traffic goes on afterwards."""
    server, client = ends.under_way()
    halted = server if role == "server" else client
    halted.signal(signal.SIGSTOP)
    time.sleep(HALT)
    halted.signal(signal.SIGCONT)
    time.sleep(1)
    if server.ended() or client.ended():
        raise Failed("an end did not outlive it")
    client.signal(signal.SIGTERM)
    if not server.wait(PATIENCE):
        raise Failed("server: does not notice that its client ended")


def connection_is_reset(ends):
    needs_root()
    server, client = ends.under_way()
    subprocess.run(["ss", "-K", "-t", "dport", "=", str(ends.port)], stdout=subprocess.DEVNULL, check=True)
    if not client.wait(2) and client.connections(ends.port):
        raise Skipped("this kernel does not close the connections of others (CONFIG_INET_DIAG_DESTROY)")
    ends.await_both(client, server)


def datagrams_of_every_kind(ends):
    """What a peer sends in whatever groups reaches a program whose datagrams come coalesced one by one, as it was."""
    script = str(HERE / "datagrams.py")
    receiver = Process((ends.weft, "run", "--udp", "gso", "--", sys.executable, script, "-r", str(ends.port), "3"),
                       dict(os.environ), ends.folder / "receiver")
    sender = Process((sys.executable, script, "-s", str(ends.port), "3"), dict(os.environ), ends.folder / "sender")
    ends.started += [receiver, sender]
    heard, _ = ends.await_both(receiver, sender)
    if not re.search(r"datagrams: [1-9]\d+ right", heard.output):
        raise Failed(f"receiver: {heard.how()}: {heard.last_line()}")


def cells():
    yield "every disk is full", every_disk_is_full
    yield "no file may be written (RLIMIT_FSIZE)", no_file_may_be_written
    yield "no thread is to be had (RLIMIT_NPROC)", no_thread_is_to_be_had
    yield "no descriptor is left (RLIMIT_NOFILE)", no_descriptor_is_left
    for size in ADDRESS_SPACES:
        yield f"{size} MiB of addresses (RLIMIT_AS)", lambda ends, size=size: little_memory(ends, size)
    for by in (1_000_000, -60):
        yield f"clocks {by} s apart (a time namespace)", lambda ends, by=by: clocks_disagree(ends, by)
    for role in ("server", "client"):
        yield f"the {role} is stopped for {HALT:.0f} s", lambda ends, role=role: stopped_for_a_while(ends, role)
    yield "the connection is reset in traffic", connection_is_reset
    yield "datagrams of every length and grouping", datagrams_of_every_kind


# --- the run

def play(cell, options, ports):
    """passed, failed or skipped, and why."""
    with tempfile.TemporaryDirectory(prefix="weft-adversity-") as folder:
        os.chmod(folder, 0o755)
        ends = Ends(options.staged, next(ports), Path(folder))
        try:
            cell(ends)
            return "passed", ""
        except Failed as found:
            return "failed", str(found)
        except Skipped as reason:
            return "skipped", str(reason)
        finally:
            ends.stop()


def stage(weft, folder):
    """A copy of the command and its libraries that every user can read."""
    for item in weft.parent.glob("*.so"):
        shutil.copy(item, folder)
    shutil.copytree(weft.parent / "weft-libs", Path(folder) / "weft-libs", symlinks=True)
    os.chmod(folder, 0o755)
    return shutil.copy(weft, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", type=Path, default=ROOT / "target/release/weft", help="the command under test")
    parser.add_argument("--only", metavar="REGEX", type=re.compile, help="only cells whose name matches")
    options = parser.parse_args()
    missing = [name for name in ("rping", "prlimit", "unshare", "ss") if not shutil.which(name)]
    if missing:
        print(f"skipped: {', '.join(missing)} not installed")
        return Counts(skipped=1).close()
    counts = Counts()
    ports = free_ports()
    with tempfile.TemporaryDirectory(prefix="weft-adversity-") as folder:
        options.staged = stage(options.weft.resolve(), folder)
        for name, cell in cells():
            if options.only and not options.only.search(name):
                continue
            outcome, why = play(cell, options, ports)
            if outcome == "failed":
                first = why
                with again.alone():
                    outcome, why = play(cell, options, ports)
                if outcome == "passed":
                    again.say(name, first)
            counts.add(outcome)
            print(f"{outcome} {name}{': ' if why else ''}{why}", flush=True)
    return counts.close()


if __name__ == "__main__":
    sys.exit(main())
