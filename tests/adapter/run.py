#!/usr/bin/env python3
"""The inline adapter between two network namespaces: programs of others over a TCP of Weft's own.

    tests/adapter/run.py --weft FILE [--only REGEX]

Two namespaces, `left` and `right`, have a veth pair between them. Where a program has an adapter the kernel has no
address on its end, so that what arrives has come by the adapter. Needs no privilege but user namespaces; where there
are none it is skipped, as is a case whose program is not there. A case that fails runs once more, alone. Closes with
`N passed, N failed, N skipped`.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
import again  # noqa: E402
import checks  # noqa: E402
from counts import Counts  # noqa: E402
from network import Namespaces, enter, ip  # noqa: E402
from process import Failed, Process, Talker, until  # noqa: E402

INSIDE = "--inside"
LEFT, RIGHT = "left", "right"
# On the veth pair of the adapters.
ADDRESS = {LEFT: "10.1.0.1", RIGHT: "10.1.0.2"}
ADDRESS6 = {LEFT: "fd01::1", RIGHT: "fd01::2"}
# On a second pair, of the kernel's, for programs that exchange addresses by a socket of their own.
BESIDE = {LEFT: "192.0.2.1", RIGHT: "192.0.2.2"}
# What has to come is waited for so long, seconds.
PATIENCE = 60
CASES = {}


class Skip(Exception):
    pass


def case(function):
    CASES[function.__name__] = function
    return function


class Bed:
    def __init__(self, weft, logs):
        self.weft, self.logs, self.started, self.talkers = weft, Path(logs), [], []
        # Where `ip` keeps the names of namespaces; the run's own, as its root is not the machine's.
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
        self.namespaces = Namespaces()
        self.ends = {end: self.namespaces.add(end) for end in (LEFT, RIGHT)}
        self.namespaces.join(self.ends[LEFT], self.ends[RIGHT])
        self.namespaces.join(self.ends[LEFT], self.ends[RIGHT], here="beside", there="beside")
        # For `weft link`, where a case wants it between the ends.
        self.middle = self.namespaces.add("middle")
        for end, namespace in self.ends.items():
            namespace.up("eth0")
            namespace.up("beside", f"{BESIDE[end]}/24")

    def close(self):
        self.namespaces.close()

    def ip(self, end, *words):
        """Runs `ip` in the namespace of an end."""
        ip("-n", self.ends[end].name, *words)

    def adapter(self, end, *more, interface="packet:eth0"):
        """The words by which a program has the adapter of an end."""
        addresses = [f"--address={ADDRESS[end]}/24", f"--address={ADDRESS6[end]}/64"]
        return ["run", "--adapter=inline", f"--interface={interface}", *addresses, *more, "--"]

    def start(self, end, words, program):
        """Starts a program under `weft WORDS` in the namespace of an end."""
        if not shutil.which(program[0]):
            raise Skip(f"there is no {program[0]}")
        log = self.logs / f"{len(self.started)}-{end}-{Path(program[0]).name}"
        command = [*self.ends[end].enter, self.weft, *words, *program]
        process = Process(command, os.environ | {"WEFT_LOG": "warn"}, log)
        self.started.append(process)
        return process

    def stop(self):
        for process in self.started:
            process.stop()
        for talker in self.talkers:
            talker.kill()
        self.started, self.talkers = [], []

    def built(self, source):
        """A program of this folder, compiled."""
        if not shutil.which("cc"):
            raise Skip("there is no C compiler")
        program = self.logs / Path(source).stem
        include = HERE.parent.parent / "abi/include"
        subprocess.run(["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", include, "-o", program,
                        HERE / source, "-lrdmacm", "-libverbs"], check=True)
        return program

    def says(self, end, *words, status=None):
        """What a command of Weft's says, on both outputs."""
        command = [*self.ends[end].enter, self.weft, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert status is None or done.returncode == status, done
        return done.stdout + done.stderr

    def reads(self, end, file):
        """What a file says in the namespace of an end."""
        command = [*self.ends[end].enter, "cat", file]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout

    def both(self, server, client, check):
        """A server at the right and its client at the left, each as (words, program), and no complaint of `check`."""
        served = self.start(RIGHT, *server)
        # A client may be there first: it asks again for a second, and for the neighbour for longer.
        asked = None
        for _ in range(10):
            asked = self.start(LEFT, *client)
            assert asked.wait(PATIENCE), "the client does not end"
            if asked.result().status == 0 or served.ended():
                break
            time.sleep(0.2)
        assert served.wait(PATIENCE), f"the server does not end: {asked.result()}"
        complaint = check(served.result(), asked.result())
        assert complaint is None, f"{complaint}\nserver: {served.result()}\nclient: {asked.result()}"
        return asked.result()

    def rping(self, server, client, to=ADDRESS[RIGHT], count=20, size=2000):
        """rping between two ends; each is the words of its `weft run`."""
        every = ["-v", "-V", "-C", count, "-S", size]
        self.both((server, words("rping", "-s", "-a", to, *every)), (client, words("rping", "-c", "-a", to, *every)),
                  checks.rping(count))

    def rping_client(self, to):
        """A client of a server that stays, until it is served."""
        for _ in range(10):
            asked = self.start(LEFT, self.adapter(LEFT), words("rping", "-c", "-a", to, "-v", "-V", "-C", 3))
            assert asked.wait(PATIENCE), "the client does not end"
            if asked.result().status == 0:
                return
            time.sleep(0.2)
        raise AssertionError(asked.result())

    def perftest(self, name, server, client, to, *options, rows=1):
        """A program of perftest between two ends."""
        program = words(name, "-F", *options)
        result = self.both((server, program), (client, [*program, to]), checks.perftest_rows(rows))
        print(f"    {name}: {checks.result_rows(result.output)[-1]}", flush=True)


def words(*all_of_them):
    return [str(word) for word in all_of_them]


# --- programs over two adapters


@case
def rping_over_two_adapters(bed):
    bed.rping(bed.adapter(RIGHT), bed.adapter(LEFT))


@case
def rping_over_two_adapters_by_ipv6(bed):
    bed.rping(bed.adapter(RIGHT), bed.adapter(LEFT), to=ADDRESS6[RIGHT])


@case
def rping_with_each_way_of_placing(bed):
    for place in ("in-order", "safe", "eager"):
        bed.rping(bed.adapter(RIGHT, f"--place={place}"), bed.adapter(LEFT), size=60000)


@case
def rping_without_crc(bed):
    bed.rping(bed.adapter(RIGHT, "--crc=off"), bed.adapter(LEFT, "--crc=off"), size=60000)


@case
def perftest_over_two_adapters_by_rdma_cm(bed):
    for name in ("ib_send_lat", "ib_write_lat", "ib_read_lat"):
        bed.perftest(name, bed.adapter(RIGHT), bed.adapter(LEFT), ADDRESS[RIGHT], "-R", "-n", 500)
    for name in ("ib_send_bw", "ib_write_bw", "ib_read_bw"):
        bed.perftest(name, bed.adapter(RIGHT), bed.adapter(LEFT), ADDRESS[RIGHT], "-R", "-n", 200, "-s", 1 << 20)


@case
def perftest_over_two_adapters_that_sleeps(bed):
    bed.perftest("ib_send_lat", bed.adapter(RIGHT), bed.adapter(LEFT), ADDRESS[RIGHT], "-R", "-e", "-n", 500)


@case
def perftest_over_two_adapters_by_gid(bed):
    # The addresses are exchanged over the kernel's; GID 0 is the adapter's.
    bed.perftest("ib_write_bw", bed.adapter(RIGHT), bed.adapter(LEFT), BESIDE[RIGHT], "-x", 0, "-n", 200, "-s", 65536)


def by_gid(bed, program, *options):
    """A program between two ends that exchange addresses over the kernel's, and talk by GID 0, the adapters'."""
    server = bed.adapter(RIGHT), words(*program, *options)
    return bed.both(server, (bed.adapter(LEFT), words(*program, *options, BESIDE[RIGHT])), succeeded)


def succeeded(served, asked):
    """What is wrong where one of two programs failed."""
    return None if served.status == asked.status == 0 else "an end failed"


@case
def datagrams_over_two_adapters(bed):
    by_gid(bed, ["ibv_ud_pingpong", "-g", 0], "-s", 1024, "-n", 2000)
    # By IPv6, whose fragments are shorter.
    by_gid(bed, ["ibv_ud_pingpong", "-g", 1], "-s", 4096, "-n", 500)
    bed.perftest("ib_send_lat", bed.adapter(RIGHT), bed.adapter(LEFT), BESIDE[RIGHT], "-c", "UD", "-x", 0, "-n", 500)
    for size in (64, 4096):
        options = ["-c", "UD", "-x", 0, "-n", 5000, "-s", size]
        bed.perftest("ib_send_bw", bed.adapter(RIGHT), bed.adapter(LEFT), BESIDE[RIGHT], *options)


@case
def datagrams_between_an_adapter_and_the_kernels_udp(bed):
    with_kernel(bed, RIGHT)
    known = bed.says(RIGHT, "run", "--", "ibv_devinfo", "-v")
    index = re.search(rf"GID\[\s*(\d+)\]:\s*::ffff:{re.escape(ADDRESS[RIGHT])}", known)
    assert index, known
    for size in (64, 4096):
        options = words("-F", "-c", "UD", "-n", 2000, "-s", size)
        server = words("ib_send_bw", *options, "-x", index[1])
        client = words("ib_send_bw", *options, "-x", 0, BESIDE[RIGHT])
        bed.both((["run", "--"], server), (bed.adapter(LEFT), client), checks.perftest_rows(1))


@case
def who_serves_datagrams_is_found_by_rdma_cm(bed):
    for to in (ADDRESS[RIGHT], ADDRESS6[RIGHT]):
        server = bed.adapter(RIGHT), words("udaddy", "-b", to, "-C", 50, "-S", 2000)
        client = bed.adapter(LEFT), words("udaddy", "-s", to, "-C", 50, "-S", 2000)
        bed.both(server, client, succeeded)


@case
def ucx_over_two_adapters(bed):
    settings = ["env", "UCX_TLS=rc", "UCX_NET_DEVICES=weft0:1", "UCX_LOG_LEVEL=error"]
    for test, size in (("tag_lat", 64), ("tag_bw", 65536), ("ucp_put_bw", 1 << 20), ("ucp_get", 4096)):
        result = by_gid(bed, [*settings, "ucx_perftest"], "-t", test, "-s", size, "-n", 1000)
        print(f"    ucx_perftest {test}: {result.output.strip().splitlines()[-1]}", flush=True)


# --- an adapter and the kernel's TCP


def with_kernel(bed, end):
    """Gives the kernel the address of an end, for the time of a case."""
    for address in (f"{ADDRESS[end]}/24", f"{ADDRESS6[end]}/64"):
        bed.ip(end, "address", "add", address, "dev", "eth0", *["nodad"] * (":" in address))


def without_kernel(bed):
    for end in (LEFT, RIGHT):
        bed.ip(end, "address", "flush", "dev", "eth0", "scope", "global")


@case
def rping_from_an_adapter_to_the_kernels_tcp(bed):
    with_kernel(bed, RIGHT)
    for to in (ADDRESS[RIGHT], ADDRESS6[RIGHT]):
        bed.rping(["run", "--"], bed.adapter(LEFT), to=to)
    bed.perftest("ib_write_bw", ["run", "--"], bed.adapter(LEFT), ADDRESS[RIGHT], "-R", "-n", 200, "-s", 1 << 20)


@case
def rping_from_the_kernels_tcp_to_an_adapter(bed):
    with_kernel(bed, LEFT)
    for to in (ADDRESS[RIGHT], ADDRESS6[RIGHT]):
        bed.rping(bed.adapter(RIGHT), ["run", "--"], to=to)
    bed.perftest("ib_write_bw", bed.adapter(RIGHT), ["run", "--"], ADDRESS[RIGHT], "-R", "-n", 200, "-s", 1 << 20)


@case
def a_server_at_all_addresses_is_found_at_the_kernels_and_at_the_adapters(bed):
    for to, client in ((BESIDE[RIGHT], ["run", "--"]), (ADDRESS[RIGHT], bed.adapter(LEFT))):
        server = bed.adapter(RIGHT), words("rping", "-s", "-a", "0.0.0.0", "-v", "-V", "-C", 5)
        bed.both(server, (client, words("rping", "-c", "-a", to, "-v", "-V", "-C", 5)), checks.rping(5))


@case
def rping_over_a_tap(bed):
    if not os.path.exists("/dev/net/tun"):
        raise Skip("there is no /dev/net/tun")
    # The kernel of the right end is the peer, at the other end of the TAP.
    bed.ip(RIGHT, "tuntap", "add", "tap0", "mode", "tap")
    try:
        bed.ends[RIGHT].up("tap0", "10.2.0.1/24")
        adapter = ["run", "--adapter=inline", "--interface=tap:tap0", "--address=10.2.0.2/24", "--"]
        every = ["-v", "-V", "-C", 20, "-S", 2000]
        served = bed.start(RIGHT, adapter, words("rping", "-s", "-a", "10.2.0.2", *every))
        asked = bed.start(RIGHT, ["run", "--"], words("rping", "-c", "-a", "10.2.0.2", *every))
        assert asked.wait(PATIENCE) and served.wait(PATIENCE), "they do not end"
        complaint = checks.rping(20)(served.result(), asked.result())
        assert complaint is None, (complaint, served.result(), asked.result())
    finally:
        bed.stop()
        bed.ip(RIGHT, "link", "delete", "tap0")


# --- what is seen of it


def statistics_of_rping(bed, *more, interface="packet:eth0"):
    """What `weft stat` says of both ends of an rping that goes on, each with more words for `weft run`."""
    every = words("-v", "-V", "-C", 100000)
    served = bed.adapter(RIGHT, *more, interface=interface)
    bed.start(RIGHT, served, [*words("rping", "-s", "-a", ADDRESS[RIGHT]), *every])

    def is_told_of(row):
        # The interface is told of every tenth of a second.
        frames = [min(one["frames_in"], one["frames_out"]) for one in row["interfaces"]]
        return row["program"] == "rping" and row["octets_in"] > 10000 and frames and min(frames) > 10

    def rows():
        # A client may be there before its server.
        if not bed.started[1:] or bed.started[-1].ended():
            asked = bed.adapter(LEFT, *more, interface=interface)
            bed.start(LEFT, asked, [*words("rping", "-c", "-a", ADDRESS[RIGHT]), *every])
        said = json.loads(bed.says(LEFT, "stat", "--json", status=0))
        rows = [row for row in said["processes"] if is_told_of(row)]
        return rows if len(rows) == 2 else None

    assert until(rows, PATIENCE), bed.says(LEFT, "stat")
    return rows()


@case
def a_rule_says_how_connections_send(bed):
    # 12.5 MB a second, of the connection to this address alone.
    rules = f"rate=100Mbit acks=1/8 address={ADDRESS[RIGHT]} program=rping; reno"
    for row in statistics_of_rping(bed, f"--tcp={rules}"):
        (connection,) = row["each"]
        assert connection["path"]["control"] == "rate" and connection["path"]["rate"] == 12_500_000, row


@case
def a_program_says_how_its_connections_send(bed):
    """For those that its listener takes, for one before it is there, and for the same one when it is."""
    program = bed.built("policy.c")
    # The option goes before the rules.
    adapter = bed.adapter(LEFT, f"--tcp=cubic address={ADDRESS[LEFT]}")
    process = Talker([*bed.ends[LEFT].enter, bed.weft, *adapter, program, ADDRESS[LEFT]])
    bed.talkers.append(process)

    def controls():
        said = json.loads(bed.says(LEFT, "stat", "--json", status=0))
        paths = [one["path"] for row in said["processes"] for one in row["each"]]
        return sorted((path["control"], path["rate"]) for path in paths if path)

    def are(*wanted):
        return lambda: [control for control, _ in controls()] == list(wanted)

    assert process.hear(PATIENCE) == "connected"
    assert until(are("rate", "reno"), PATIENCE), controls()
    assert controls()[0] == ("rate", 12_500_000), controls()
    assert process.ask("go on", PATIENCE) == "changed"
    assert until(are("none", "reno"), PATIENCE), controls()
    process.tell("go on")
    process.end()
    # Over the kernel's TCP it fails, and the program goes on.
    done = subprocess.run([bed.weft, "run", "--", program, "127.0.0.1"], capture_output=True, text=True,
                          timeout=PATIENCE, check=False)
    assert done.returncode == 3 and "Operation not supported" in done.stderr, done


@case
def echo_requests_are_answered_however_long(bed):
    with_kernel(bed, LEFT)
    bed.start(RIGHT, bed.adapter(RIGHT), words("rping", "-s", "-a", ADDRESS[RIGHT], "-v", "-P"))
    for to in (ADDRESS[RIGHT], ADDRESS6[RIGHT]):
        for size in (56, 3000, 20000):
            # More than a packet of the veth holds: requests and replies are in fragments.
            command = [*bed.ends[LEFT].enter, sys.executable, HERE / "echo.py", to, str(size)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert done.returncode == 0, (to, size, done)


@case
def the_statistics_tell_of_the_paths_and_of_the_interface(bed):
    for row in statistics_of_rping(bed):
        (connection,), (interface,) = row["each"], row["interfaces"]
        assert connection["carrier"] == "adapter" and connection["path"]["control"] == "cubic", row
        assert connection["path"]["rtt_ns"] > 0 and connection["path"]["rate"] > 0, row
        assert interface["name"] == "eth0", row
        assert "CONTROL" in bed.says(LEFT, "stat", row["pid"], "--once", status=0)


# --- what goes wrong


@contextmanager
def a_lossy_link(bed):
    """`weft link` between the ends, at their interfaces `lossy`; yields its report, which is filled in at its end.

    The frames of an adapter pass by the queueing disciplines of the kernel (decision 0031), and so by its netem.
    """
    for end in (LEFT, RIGHT):
        bed.namespaces.join(bed.middle, bed.ends[end], here=end, there="lossy")
        bed.middle.up(end)
        bed.ends[end].up("lossy")
    # A machine that is busy with other things is no failure of the case.
    options = ("--json", "--loss=2%", "--seed=5", "--late-max=10s")
    command = [*bed.middle.enter, bed.weft, "link", LEFT, RIGHT, *options]
    report = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as link:
        try:
            ready = link.stderr.readline()
            assert "forwarding between left and right" in ready, ready
            yield report
        finally:
            # The programs use the interfaces that go.
            bed.stop()
            link.send_signal(signal.SIGTERM)
            out, _ = link.communicate(timeout=PATIENCE)
            for end in (LEFT, RIGHT):
                bed.ip(end, "link", "delete", "lossy")
    report.update(json.loads(out))


@case
def frames_that_are_lost_cost_nothing_but_time(bed):
    with a_lossy_link(bed) as report:
        ends = [bed.adapter(end, interface="packet:lossy") for end in (RIGHT, LEFT)]
        bed.rping(*ends, size=60000)
        bed.stop()
        (one, other) = statistics_of_rping(bed, interface="packet:lossy")
        repeated = [row["each"][0]["path"]["retransmissions"] for row in (one, other)]
        assert all(repeated), repeated
    assert all(of["lost"] for of in report["directions"]), report


@case
def an_interface_that_goes_down_and_comes_back_loses_no_octet(bed):
    count = 100000
    every = ["-v", "-V", "-C", count]
    served = bed.start(RIGHT, bed.adapter(RIGHT), words("rping", "-s", "-a", ADDRESS[RIGHT], *every))
    asked = bed.start(LEFT, bed.adapter(LEFT), words("rping", "-c", "-a", ADDRESS[RIGHT], *every))

    def pings():
        return Path(f"{asked.log}.out").read_text(errors="replace").count("ping data")

    try:
        assert until(lambda: pings() > 10, PATIENCE), asked.result()
        bed.ip(RIGHT, "link", "set", "eth0", "down")
        time.sleep(1)
        assert not served.ended() and not asked.ended(), (served.result(), asked.result())
        bed.ends[RIGHT].up("eth0")
        before = pings()
        assert until(lambda: pings() > before + 10, PATIENCE), (before, asked.result())
    finally:
        bed.stop()
        bed.ends[RIGHT].up("eth0")


@case
def a_program_that_is_killed_is_followed_by_one_at_the_same_address(bed):
    listening = words("rping", "-s", "-a", ADDRESS[RIGHT], "-v", "-P")
    first = bed.start(RIGHT, bed.adapter(RIGHT), listening)
    bed.rping_client(ADDRESS[RIGHT])
    first.signal(signal.SIGKILL)
    assert first.wait(PATIENCE)
    bed.start(RIGHT, bed.adapter(RIGHT), listening)
    bed.rping_client(ADDRESS[RIGHT])


@case
def what_is_wrong_is_said_with_the_command_that_helps(bed):
    def refused(*options, end=LEFT):
        options = ["--adapter=inline", *options]
        run = bed.says(end, "run", *options, "--", "rping", "-c", status=125)
        # The doctor foretells it.
        assert run.splitlines()[0].removeprefix("weft: ") in bed.says(end, "doctor", *options, status=1), run
        return run

    one = ["--interface=packet:eth0", f"--address={ADDRESS[LEFT]}/24"]
    assert "--interface packet:veth1 --address" in refused()
    said = refused("--interface=packet:nobody0", "--address=10.1.0.9/24")
    assert "no interface nobody0" in said and "ip link" in said, said
    assert "no Ethernet" in refused("--interface=packet:lo", "--address=10.1.0.9/24")
    bed.ip(LEFT, "link", "set", "eth0", "down")
    try:
        assert "ip link set eth0 up" in refused(*one)
    finally:
        bed.ends[LEFT].up("eth0")
    with_kernel(bed, LEFT)
    try:
        assert f"ip address del {ADDRESS[LEFT]}/24 dev eth0" in refused(*one)
    finally:
        without_kernel(bed)
    forward = "net.ipv4.conf.eth0.forwarding"
    subprocess.run([*bed.ends[LEFT].enter, "sysctl", "-qw", f"{forward}=1"], check=True)
    try:
        assert f"sysctl -w {forward}=0" in refused(*one)
    finally:
        subprocess.run([*bed.ends[LEFT].enter, "sysctl", "-qw", f"{forward}=0"], check=True)
    without = ["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw"]
    command = [*bed.ends[LEFT].enter, *without, bed.weft, "run", "--adapter=inline", *one, "--", "rping", "-c"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 125 and "CAP_NET_RAW" in done.stderr and "unshare -Urn" in done.stderr, done


@case
def an_address_is_one_programs_at_a_time(bed):
    first = bed.start(RIGHT, bed.adapter(RIGHT), words("rping", "-s", "-a", ADDRESS[RIGHT], "-v", "-P"))
    # Before that it is a matter of luck who of the two has it: who asks takes the address for a moment.
    assert until(lambda: f"weft-adapter/packet:eth0/{ADDRESS[RIGHT]}" in bed.reads(RIGHT, "/proc/net/unix"), PATIENCE)
    options = ["--adapter=inline", "--interface=packet:eth0", f"--address={ADDRESS[RIGHT]}/24"]
    assert until(lambda: "has the adapter's address" in bed.says(RIGHT, "run", *options, "--", "true"), PATIENCE)
    first.stop()
    bed.says(RIGHT, "run", *options, "--", "true", status=0)


@case
def the_doctor_says_which_adapter_there_will_be(bed):
    said = bed.says(LEFT, "doctor", "--adapter=inline", "--interface=packet:eth0", f"--address={ADDRESS[LEFT]}/24",
                    "rping", status=0)
    assert f"inline: packet:eth0 address={ADDRESS[LEFT]}/24" in said, said
    # Nobody else has an address in that namespace.
    assert f"GIDs: 0 {ADDRESS[LEFT]}" in said, said


@case
def a_file_has_the_same_settings(bed):
    with tempfile.TemporaryDirectory(prefix="weft-adapter-") as folder:
        for end in (LEFT, RIGHT):
            interface = f'"packet:eth0 address={ADDRESS[end]}/24"'
            text = f'[network]\nadapter = "inline"\ninterface = [{interface}]\n'
            Path(folder, f"{end}.toml").write_text(text)
        by_file = {end: ["run", f"--config={folder}/{end}.toml", "--"] for end in (LEFT, RIGHT)}
        bed.rping(by_file[RIGHT], by_file[LEFT])


def play(bed, name):
    """How a case went, and why."""
    try:
        CASES[name](bed)
    except Skip as reason:
        return "skipped", str(reason)
    except subprocess.CalledProcessError as error:
        return "failed", f"{error}: {error.stderr}"
    except (AssertionError, Failed, OSError, ValueError, KeyError, IndexError, subprocess.TimeoutExpired) as error:
        # What rping prints of its data is left out.
        return "failed", re.sub(r"\S{60,}", "..", f"{type(error).__name__}: {error}")[:4000]
    finally:
        bed.stop()
        without_kernel(bed)
    return "passed", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", required=True, help="the command")
    parser.add_argument("--only", default="", help="cases whose name this finds")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:
        print(f"skipped all: {enter(INSIDE)}")
        return Counts(skipped=1).close()
    counts = Counts()
    with tempfile.TemporaryDirectory(prefix="weft-adapter-logs-") as logs:
        bed = Bed(os.path.realpath(args.weft), logs)
        for name in filter(lambda name: re.search(args.only, name), CASES):
            begin = time.monotonic()
            how, why = play(bed, name)
            if how == "failed":
                print(f"failed {name}: {why}", flush=True)
                with again.alone():
                    how, _ = play(bed, name)
                if how == "passed":
                    again.say(name, why)
                    why = ""
            counts.add(how)
            print(f"{how} {name} {time.monotonic() - begin:.1f} s{': ' if why else ''}{why}", flush=True)
        bed.close()
    return counts.close()


if __name__ == "__main__":
    sys.exit(main())
