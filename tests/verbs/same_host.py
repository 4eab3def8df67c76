#!/usr/bin/env python3
"""Two programs in two network namespaces that share a folder: `--same-host-dir` at both ends, at one, of two users, and
gone wrong.

    tests/verbs/same_host.py --weft TARGET/release/weft

perftest's programs move messages over a veth, and Weft's log says whether they share memory. Needs no privilege but
user namespaces, where there are none it is skipped; but for the case with two users, which needs root. The last line is
`N passed, N failed, N skipped`.
"""
import argparse
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
import again  # noqa: E402
from counts import Counts  # noqa: E402
from network import Namespaces, acting_as, enter, may_act_as  # noqa: E402
from process import Failed, Process  # noqa: E402

INSIDE = "--inside"
PROGRAM = "ib_send_lat"
SERVER = "198.51.100.1"
PATIENCE = 60
# Options of a run that ends, and of one that does not by itself.
SHORT, LONG = ("-n", "2000"), ("-D", "60")
SHARES = ": shares memory with "
# What a process that was killed leaves is removed by the next one once it is older than ten seconds.
LONG_AGO = 60
# Numbers that no user has whom a system makes.
ROOT, ONE, OTHER = 0, 60001, 60002


class Impossible(Exception):
    """A case cannot be played here; says why."""


class Bed:
    """The two namespaces, a folder, and programs of one case."""

    def __init__(self, namespaces, weft, work):
        self.weft, self.work, self.processes, self.port = weft, work, [], 18515
        self.there, self.here = namespaces.add("server"), namespaces.add("client")
        namespaces.join(self.there, self.here)
        self.there.up("eth0", f"{SERVER}/24")
        self.here.up("eth0", "198.51.100.2/24")
        self.folder = work / "shared"
        self.folder.mkdir()
        self.users = {}  # of the ends that are another user's

    def start(self, namespace, folder, *words):
        rule = [f"--same-host-dir={folder}"] if folder else []
        user = acting_as(self.users[namespace]) if namespace in self.users else []
        argv = [*namespace.enter, *user, self.weft, "run", "--log", "debug", *rule, "--"]
        argv += [PROGRAM, "-R", "-F", "-p", self.port]
        log = self.work / f"{len(self.processes)}"
        process = Process([str(word) for word in (*argv, *words)], dict(os.environ), log)
        self.processes.append(process)
        return process

    def run(self, server_folder, client_folder):
        """Both ends' logs of a run that has to end well."""
        self.port += 1
        server = self.start(self.there, server_folder, *SHORT)
        time.sleep(0.5)
        client = self.start(self.here, client_folder, *SHORT, SERVER)
        for process in (client, server):
            if not process.wait_awake(PATIENCE):
                raise Failed(f"{PROGRAM} does not end")
        ended = [process.result() for process in (server, client)]
        if any(one.status for one in ended):
            raise Failed(" ".join(f"{one.how()}: {one.errors[-400:]}" for one in ended))
        return [one.errors for one in ended]

    def end(self):
        for process in self.processes:
            process.stop()
        self.processes, self.users = [], {}
        for left in self.folder.iterdir():
            left.unlink()


def expect(what, is_so):
    if not is_so:
        raise Failed(str(what)[-600:])


def both_name_the_folder(bed):
    server, client = bed.run(bed.folder, bed.folder)
    expect((server, client), SHARES in server)
    left = list(bed.folder.iterdir())
    expect(left, not left)


def each_has_a_path_of_its_own(bed):
    """As containers have that mount one folder at two places."""
    other = bed.work / "mounted"
    other.unlink(missing_ok=True)
    other.symlink_to(bed.folder)
    server, client = bed.run(bed.folder, other)
    expect((server, client), SHARES in server)


def one_end_names_none(bed):
    for folders in ((bed.folder, None), (None, bed.folder), (None, None)):
        server, client = bed.run(*folders)
        expect((folders, server, client), SHARES not in server)


def there_is_no_such_folder(bed):
    server, client = bed.run(bed.work / "none", bed.folder)
    expect((server, client), SHARES not in server and "same-host-dir: in " in server)


def what_a_killed_server_left_is_removed(bed):
    server = bed.start(bed.there, bed.folder, *LONG)
    time.sleep(0.5)
    client = bed.start(bed.here, bed.folder, *LONG, SERVER)
    begun = time.monotonic()
    while SHARES not in pathlib.Path(f"{server.log}.err").read_text():
        expect("no memory is shared", time.monotonic() < begun + PATIENCE and not server.ended())
        time.sleep(0.02)
    server.stop()
    client.stop()
    left, = bed.folder.iterdir()
    os.utime(left, (time.time() - LONG_AGO,) * 2)
    bed.run(bed.folder, bed.folder)
    expect(left, not list(bed.folder.iterdir()))


def left_by(bed, user):
    """The socket of a process of that user that was killed long ago, and that anybody may connect to."""
    path = bed.folder / f"weft-rings-of-{user}"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
    path.chmod(0o777)
    os.chown(path, user, user)
    os.utime(path, (time.time() - LONG_AGO,) * 2)
    return path


def two_users_stay_on_tcp(bed):
    """Each removes what it left itself, and nothing of the other's. Everybody may connect to the sockets."""
    bed.work.chmod(0o711)
    bed.folder.chmod(0o1777)
    for user in (ONE, OTHER):
        if not may_act_as(user, (bed.weft, "--version")):
            raise Impossible(f"user {user} cannot run {bed.weft}, or nobody may act as that user")
    for users in ((ONE, ONE), (ONE, OTHER), (ROOT, ONE), (ONE, ROOT)):
        left = {user: left_by(bed, user) for user in (*users, ROOT, OTHER)}
        bed.users = dict(zip((bed.there, bed.here), users, strict=True))
        usual = os.umask(0)
        try:
            server, client = bed.run(bed.folder, bed.folder)
        finally:
            os.umask(usual)
        one, other = users
        expect((users, server, client), (SHARES in server) == (one == other))
        expect((users, server, client), (": TCP carries the octets: " in client) == (one != other))
        there = set(bed.folder.iterdir())
        expect((users, there), there == {path for user, path in left.items() if user != one})


CASES = {case.__name__: case for case in (both_name_the_folder, each_has_a_path_of_its_own, one_end_names_none,
                                          there_is_no_such_folder, what_a_killed_server_left_is_removed,
                                          two_users_stay_on_tcp)}


def play(bed, case):
    try:
        case(bed)
        return "passed", ""
    except Impossible as reason:
        return "skipped", reason
    except (Failed, OSError, ValueError) as error:
        return "failed", error
    finally:
        bed.end()


def main():
    if not shutil.which(PROGRAM):
        print(f"skipped: there is no {PROGRAM} (package perftest)")
        return Counts(skipped=1).close()
    if INSIDE not in sys.argv:
        why_not = enter(INSIDE, users=(ONE, OTHER))
        print(f"skipped: {why_not}")
        return Counts(skipped=1).close()
    sys.argv.remove(INSIDE)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", required=True, type=pathlib.Path, help="the built command")
    arguments = parser.parse_args()
    # Where `ip` keeps the names of namespaces; the run's own, as its root is not the machine's.
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    namespaces = Namespaces()
    with tempfile.TemporaryDirectory(prefix="weft-same-host-") as work:
        try:
            bed = Bed(namespaces, arguments.weft.resolve(), pathlib.Path(work))
            return again.play_each(CASES, lambda name: play(bed, CASES[name])).close()
        finally:
            namespaces.close()


if __name__ == "__main__":
    sys.exit(main())
