#!/usr/bin/env python3
"""A device for each interface, by `--devices`, on a host with two links to another.

    tests/verbs/devices.py --weft TARGET/release/weft

Two network namespaces are joined by two veth pairs. What a program sees of the devices is read by ibv_devinfo and from
the files that stand in for sysfs; perftest and UCX show by the interfaces' counters which link their octets took; and
the conformance program (tests/verbs/run.py) runs on the second device. Needs no privilege but user namespaces; where
there are none it is skipped. The last line is `N passed, N failed, N skipped`.
"""
import argparse
import errno
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
import again  # noqa: E402
from counts import Counts, of_cases  # noqa: E402
from network import Namespaces, enter  # noqa: E402
from process import Failed, Process  # noqa: E402

INSIDE = "--inside"
PATIENCE = 60
LINKS = ("eth1", "eth2")
# The server's address on each link; the client's ends in 2.
SERVER = {"eth1": "198.51.100.1", "eth2": "203.0.113.1"}
SYSFS = """
import os
for name in sorted(os.listdir("/sys/class/infiniband")):
    port = f"/sys/class/infiniband/{name}/ports/1"
    print(name, open(f"{port}/gid_attrs/ndevs/0").read().strip(), open(f"{port}/gids/0").read().strip(),
          len(os.listdir(f"{port}/gids")), os.path.exists(f"/dev/infiniband/{name}"),
          os.path.exists(f"/dev/infiniband/{name}0"), os.path.exists("/dev/infiniband/weft2"))
"""
# The devices that ids of the connection manager share: how many, how many contexts differ, and errno.
CONTEXTS = """
import ctypes
rdma = ctypes.CDLL("librdmacm.so.1", use_errno=True)
rdma.rdma_get_devices.restype = ctypes.POINTER(ctypes.c_void_p)
count = ctypes.c_int(-1)
devices = rdma.rdma_get_devices(ctypes.byref(count))
print(count.value, bool(devices) and len({devices[at] for at in range(count.value)}), ctypes.get_errno())
rdma.rdma_free_devices(devices)
"""


class Impossible(Exception):
    """A case cannot be played here; says why."""


class Bed:
    """The two namespaces, and programs of one case."""

    def __init__(self, namespaces, weft, work):
        self.weft, self.work, self.processes, self.port = weft, work, [], 18600
        self.there, self.here = namespaces.add("server"), namespaces.add("client")
        for link, server in SERVER.items():
            namespaces.join(self.there, self.here, link, link)
            self.there.up(link, f"{server}/24")
            self.here.up(link, f"{server[:-1]}2/24")

    def words(self, namespace, devices, *words, options=(), variables=()):
        run = [self.weft, "run", "--anyway", "--devices", devices, *options, "--"]
        return [str(word) for word in (*namespace.enter, "env", *variables, *run, *words)]

    def said(self, devices, *words, options=()):
        """What a program in the client's namespace does, as a finished process."""
        return subprocess.run(self.words(self.here, devices, *words, options=options), capture_output=True, text=True,
                              timeout=PATIENCE, check=False)

    def start(self, namespace, *words, variables=()):
        argv = self.words(namespace, "all", *words, variables=variables)
        process = Process(argv, dict(os.environ), self.work / f"{len(self.processes)}")
        self.processes.append(process)
        return process

    def run(self, server, client, variables=()):
        """Runs a program at both ends that has to end well; how many octets went out of each of the client's links."""
        before = self.counters()
        server = self.start(self.there, *server, variables=variables)
        time.sleep(0.5)
        client = self.start(self.here, *client, variables=variables)
        for process in (client, server):
            if not process.wait_awake(PATIENCE):
                raise Failed(f"{process.name} does not end")
        ended = [process.result() for process in (server, client)]
        if any(one.status for one in ended):
            raise Failed(" ".join(f"{one.how()}: {(one.output + one.errors)[-400:]}" for one in ended))
        return {link: count - before[link] for link, count in self.counters().items()}

    def counters(self):
        """Octets that went out of each of the client's links."""
        # The folder of sysfs shows the network of the process that mounted it, so the kernel is asked by /proc.
        text = subprocess.run([*self.here.enter, "cat", "/proc/self/net/dev"], capture_output=True, text=True,
                              check=True).stdout
        return {link: int(re.search(rf"{link}:\s*(.*)", text)[1].split()[8]) for link in LINKS}

    def end(self):
        for process in self.processes:
            process.stop()
        self.processes = []


def expect(what, is_so):
    if not is_so:
        raise Failed(str(what)[-600:])


def each_interface_has_one(bed):
    """With its addresses as GIDs and an identity of its own."""
    done = bed.said("all", "ibv_devinfo", "-v")
    devices = re.split(r"hca_id:\s*", done.stdout)[1:]
    expect(done, [device.split()[0] for device in devices] == ["weft0", "weft1"])
    gids = [re.findall(r"GID\[\s*\d+\]:\s*::ffff:(\S+?),", device) for device in devices]
    expect(done.stdout, gids == [["198.51.100.2"], ["203.0.113.2"]])
    guids = {re.search(r"node_guid:\s*(\S+)", device)[1] for device in devices}
    expect(guids, len(guids) == 2)


def the_files_of_each_are_there(bed):
    done = bed.said("all", sys.executable, "-c", SYSFS, options=("--mode", "preload"))
    expected = [f"weft{at} {link} 0000:0000:0000:0000:0000:ffff:{gid} 1 True False False"
                for at, (link, gid) in enumerate(zip(LINKS, ("c633:6402", "cb00:7102"), strict=True))]
    expect(done, done.stdout.splitlines() == expected)


def named_ones_come_in_their_order(bed):
    done = bed.said("eth2,eth1", "ibv_devinfo", "-v")
    expect(done, re.findall(r"::ffff:(\S+?),", done.stdout) == ["203.0.113.2", "198.51.100.2"])
    done = bed.said("eth2", "ibv_devinfo", "-v")
    expect(done, re.findall(r"::ffff:(\S+?),", done.stdout) == ["203.0.113.2"])


def one_that_is_not_there_leaves_none(bed):
    done = bed.said("eth1,eth7", "ibv_devinfo")
    expect(done, "names eth7, and this machine's interfaces are lo, eth1, eth2" in done.stderr)
    expect(done, "weft0" not in done.stdout)
    done = bed.said("eth7", sys.executable, "-c", CONTEXTS)
    expect(done, "names eth7" in done.stderr and done.stdout.split() == ["-1", "False", str(errno.ENODEV)])
    done = bed.said("all", sys.executable, "-c", CONTEXTS)
    expect(done, done.stdout.split()[:2] == ["2", "2"])


def without_the_setting_there_is_one(bed):
    done = bed.said("one", "ibv_devinfo", "-v")
    expect(done, re.findall(r"hca_id:\s*(\S+)", done.stdout) == ["weft0"])
    expect(done, sorted(re.findall(r"::ffff:(\S+?),", done.stdout)) == ["198.51.100.2", "203.0.113.2"])


def perftest(bed, link, *options):
    """Moves some megabytes by a link's device; the octets that went out of each link."""
    bed.port += 1
    device = f"weft{LINKS.index(link)}"
    words = ["ib_write_bw", "-d", device, "-F", "-s", "65536", "-n", "200", "-p", bed.port, *options]
    return bed.run(words, [*words, SERVER[link if "-R" in options else "eth1"]])


def octets_by_gid_take_the_devices_link(bed):
    """The programs find each other by the first link in any case."""
    for link in LINKS:
        sent = perftest(bed, link, "-x", "0")
        other, = set(LINKS) - {link}
        expect((link, sent), sent[link] > 200 * 65536 and sent[other] < 65536)


def ids_belong_to_the_device_of_their_address(bed):
    """perftest refuses an id of another device than it was told of."""
    for link in LINKS:
        sent = perftest(bed, link, "-R")
        other, = set(LINKS) - {link}
        expect((link, sent), sent[link] > 200 * 65536 and sent[other] < 65536)


def ucx_spreads_a_message_over_both(bed):
    """Of the kinds of transfer that it has, messages by rendezvous take several devices in every version."""
    if not shutil.which("ucx_perftest"):
        raise Impossible("there is no ucx_perftest (package ucx-utils)")
    bed.port += 1
    variables = ["UCX_TLS=rc", "UCX_NET_DEVICES=weft0:1,weft1:1", "UCX_MAX_RNDV_RAILS=2"]
    words = ["ucx_perftest", "-t", "tag_bw", "-s", "4194304", "-n", "40", "-w", "4", "-p", bed.port]
    sent = bed.run(words, [*words, SERVER["eth1"]], variables)
    expect(sent, min(sent.values()) > sum(sent.values()) / 4)


CASES = {case.__name__: case for case in (
    each_interface_has_one, the_files_of_each_are_there, named_ones_come_in_their_order,
    one_that_is_not_there_leaves_none, without_the_setting_there_is_one, octets_by_gid_take_the_devices_link,
    ids_belong_to_the_device_of_their_address, ucx_spreads_a_message_over_both)}


def play(bed, case):
    try:
        case(bed)
        return "passed", ""
    except Impossible as reason:
        return "skipped", reason
    except (Failed, OSError, ValueError, subprocess.TimeoutExpired) as error:
        return "failed", error
    finally:
        bed.end()


def conformance(bed, work):
    """The conformance program on the second device of the client's namespace, by ids and by GID."""
    program = work / "verbs-conformance"
    if subprocess.run([HERE / "build.sh", program]).returncode:
        print("devices: the conformance program does not compile (packages gcc, libibverbs-dev, librdmacm-dev)")
        return Counts(failed=1)
    total = Counts()
    for way, known in (("cm", "known-failures-infiniband.txt"), ("gid", "known-failures-by-gid.txt")):
        words = [program, "--again", "--device", "weft1", "--address", f"{SERVER['eth2'][:-1]}2", "--by", way,
                 "--known", HERE / known]
        total += of_cases(f"the second device, {way}", bed.words(bed.here, "all", *words), {})
    return total


def main():
    lacking = [program for program in ("ib_write_bw", "ibv_devinfo") if not shutil.which(program)]
    if lacking:
        print(f"skipped: there is no {', '.join(lacking)} (packages perftest, ibverbs-utils)")
        return Counts(skipped=1).close()
    if INSIDE not in sys.argv:
        why_not = enter(INSIDE)
        print(f"skipped: {why_not}")
        return Counts(skipped=1).close()
    sys.argv.remove(INSIDE)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", required=True, type=pathlib.Path, help="the built command")
    parser.add_argument("--only", default="", help="cases whose name has this; the conformance program is called "
                                                   "conformance")
    arguments = parser.parse_args()
    # Where `ip` keeps the names of namespaces; the run's own, as its root is not the machine's.
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    namespaces = Namespaces()
    with tempfile.TemporaryDirectory(prefix="weft-devices-") as work:
        try:
            bed = Bed(namespaces, arguments.weft.resolve(), pathlib.Path(work))
            chosen = [name for name in CASES if arguments.only in name]
            total = again.play_each(chosen, lambda name: play(bed, CASES[name]))
            if arguments.only in "conformance":
                total += conformance(bed, pathlib.Path(work))
            return total.close()
        finally:
            namespaces.close()


if __name__ == "__main__":
    sys.exit(main())
