#!/usr/bin/env python3
"""`weft link` between two network namespaces: what it says it does, seen from the two ends.

    tests/link/run.py --weft FILE [--only REGEX]

Needs no privilege but user namespaces; where there are none it is skipped. A case that fails runs once more, alone.
Closes with `N passed, N failed, N skipped`.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import again  # noqa: E402
from bed import ADDRESS, ADDRESS6, HARDWARE, LEFT, PATIENCE, RIGHT, Bed  # noqa: E402
from bed import datagrams, round_trips, transfer  # noqa: E402
from counts import Counts  # noqa: E402
from network import enter, ip  # noqa: E402

INSIDE = "--inside"
SOL_PACKET = 263
PACKET_AUXDATA = 8
ETH_P_ALL = 3
CASES = {}


class Skip(Exception):
    pass


def case(function):
    CASES[function.__name__] = function
    return function


@case
def delay_is_one_way(bed):
    with bed.link("--delay", "20ms") as link:
        times = round_trips(bed, ADDRESS[RIGHT], 5) + round_trips(bed, ADDRESS6[RIGHT], 3)
    assert None not in times, times
    # What the machine adds is no matter here: that the emulator adds nothing is seen on virtual time (eval/link).
    assert min(times) >= 0.040, times
    assert all(of["delivered"] >= 8 and of["lost"] == 0 for of in link.report["directions"]), link.report


@case
def each_direction_has_its_own_delay(bed):
    with bed.link("--delay", "5ms", "--a-to-b", "delay=30ms"):
        times = round_trips(bed, ADDRESS[RIGHT], 5)
    assert None not in times and min(times) >= 0.035, times


@case
def what_is_lost_is_counted(bed):
    with bed.link("--loss", "10%", "--seed", "3") as link:
        arrived, last = datagrams(bed, 2000)
    there = link.there()
    lost = 2000 - len(arrived)
    assert there["sent"] == 2000 + last and lost <= there["lost"] < lost + last, (there, lost, last)
    assert there["sent"] == there["lost"] + there["delivered"] + there["on_the_way"], there
    assert 150 < lost < 250, there


@case
def a_seed_decides_which_are_lost(bed):
    def run(seed):
        with bed.link("--loss", "20%", "--seed", seed):
            return datagrams(bed, 300)[0]

    first = run("7")
    assert first == run("7")
    assert first != run("8")


@case
def bursts_lose_neighbours(bed):
    with bed.link("--burst-loss", "10%:10") as link:
        arrived = set(datagrams(bed, 3000)[0])
    lost = [number not in arrived for number in range(3000)]
    bursts = sum(one and not before for one, before in zip(lost, [False, *lost]))
    mean = sum(lost) / max(bursts, 1)
    assert 150 < sum(lost) < 500 and 6 < mean < 16, (sum(lost), mean)


@case
def reordered_and_duplicated_datagrams_arrive(bed):
    with bed.link("--reorder", "5%:3ms", "--duplicate", "5%") as link:
        arrived, _ = datagrams(bed, 1000, whole=True)
    there = link.there()
    assert set(arrived) == set(range(1000)) and arrived != sorted(arrived)
    # Those that come after the last one is there are not received any more.
    assert 1000 < len(arrived) <= 1000 + there["duplicated"] and there["reordered"] > 20, there


@case
def a_stream_survives_every_fault(bed):
    with bed.link("--delay", "1ms", "--resegment", "--reorder", "1%:2ms", "--duplicate", "1%", "--loss", "0.1%",
                  "--corrupt", "0.1%") as link:
        transfer(bed, 4_000_000)
        transfer(bed, 1_000_000, six=True)
    there = link.there()
    for count in ("cut", "split", "joined", "reordered", "duplicated", "corrupted", "lost"):
        assert there[count] > 0, (count, there)


@case
def small_writes_are_joined(bed):
    with bed.link("--a-to-b", "resegment") as link:
        transfer(bed, 200_000, pace=100)
    there, back = link.report["directions"]
    assert there["joined"] > 10 and back["joined"] == back["split"] == 0, link.report


@case
def a_small_mtu_is_found_out(bed):
    for six, mtu in ((False, 900), (True, 1300)):
        with bed.link("--mtu", str(mtu)) as link:
            transfer(bed, 300_000, six=six)
        address = (ADDRESS6 if six else ADDRESS)[RIGHT]
        route = bed.run(LEFT, "ip", "route", "get", address).stdout
        assert f"mtu {mtu}" in route, route
        there = link.there()
        assert there["too_big"] > 0 and there["answered"] > 0 and there["fragmented"] == 0, there
    bed.run(LEFT, "ip", "route", "flush", "cache")
    bed.run(LEFT, "ip", "-6", "route", "flush", "cache")


@case
def datagrams_are_fragmented(bed):
    with bed.link("--mtu", "600") as link:
        arrived, last = datagrams(bed, 50, length=1400, no_discovery=True)
    assert arrived == list(range(50)), arrived
    assert link.there()["fragmented"] == 50 and link.there()["sent"] == 150 + last, link.there()


@case
def datagrams_of_one_call_are_cut(bed):
    with bed.link() as link:
        arrived, last = datagrams(bed, 100, length=1000, segment=20)
    there = link.there()
    assert arrived == list(range(100)), len(arrived)
    assert there["cut"] == 5 == there["received"] - last and there["sent"] == 100 + last, there


@case
def the_rate_is_not_exceeded(bed):
    with bed.link("--rate", "100Mbit", "--delay", "2ms", "--queue", "50ms"):
        octets = 10_000_000
        took = transfer(bed, octets)
    # That it is used, too, is seen on virtual time (eval/link): here it takes a machine that is free.
    assert took >= octets * 8 / 100e6, took


@case
def a_full_queue_drops_the_tail(bed):
    with bed.link("--rate", "1Mbit", "--queue", "10kB") as link:
        arrived, _ = datagrams(bed, 200)
    there = link.there()
    assert there["queue_dropped"] > 0 == there["lost"] and arrived == sorted(arrived), there
    assert there["sent"] == there["queue_dropped"] + there["delivered"] + there["on_the_way"], there
    assert 200 - len(arrived) <= there["queue_dropped"], there


@case
def tags_of_vlans_pass(bed):
    # By packet sockets at the ends, as not every kernel has VLAN interfaces.
    tagged = bytes.fromhex(HARDWARE[RIGHT].replace(":", "") + HARDWARE[LEFT].replace(":", "") + "81002007 88b5")
    with bed.link("--delay", "1ms"), \
            bed.socket(RIGHT, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as receiver, \
            bed.socket(LEFT, socket.AF_PACKET, socket.SOCK_RAW) as sender:
        receiver.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        receiver.bind(("eth0", ETH_P_ALL))
        receiver.settimeout(PATIENCE)
        sender.bind(("eth0", 0))
        sender.send(tagged + bytes(range(60)))
        octets = b""
        while bytes(range(60)) not in octets:
            octets, control, _, _ = receiver.recvmsg(2000, 200)
    _, _, _, _, _, tag, protocol = struct.unpack("IIIHHHH", control[0][2])
    assert (protocol, tag, octets[12:14]) == (0x8100, 0x2007, b"\x88\xb5"), (control, octets)


@case
def a_capture_has_both_interfaces(bed):
    reader = shutil.which("tshark") or shutil.which("tcpdump")
    with tempfile.TemporaryDirectory(prefix="weft-link-") as folder:
        file = os.path.join(folder, "link.pcapng")
        with bed.link("--pcap", file, "--delay", "5ms", "--a-to-b", "loss=20%") as link:
            datagrams(bed, 100)
            transfer(bed, 100_000)
        if not reader:
            raise Skip("there is neither tshark nor tcpdump")
        words = ["-n", "-r", file] if reader.endswith("tshark") else ["-nn", "-r", file]
        read = subprocess.run([reader, *words], capture_output=True, text=True, env={**os.environ, "HOME": folder})
        assert read.returncode == 0, read.stderr
        there, back = link.report["directions"]
        frames = sum(of["sent"] + of["delivered"] for of in (there, back))
        assert len(read.stdout.splitlines()) == frames, (len(read.stdout.splitlines()), frames)


@case
def the_end_leaves_nothing(bed):
    before = bed.links()
    for how in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        with bed.link("--delay", "50ms", kill=how) as link:
            assert None not in round_trips(bed, ADDRESS[RIGHT], 1)
            during = bed.links()
            assert "promiscuity 1" in during, during
        after = bed.links()
        assert after == before, after
        assert (link.report is None) == (how == signal.SIGKILL), link.report


@case
def what_goes_away_is_said(bed):
    with bed.link(status=3) as link:
        ip("-n", bed.middle.name, "link", "set", LEFT, "down")
        try:
            link.process.wait(PATIENCE)
        finally:
            bed.middle.up(LEFT)
    assert "DID NOT KEEP UP" in link.stderr and "went down" in link.stderr, link.stderr
    assert not link.report["kept_up"], link.report
    # The veth pair is up again a moment later.
    with bed.link():
        assert round_trips(bed, ADDRESS[RIGHT], 10) != [None] * 10, "the link does not come back"


@case
def who_is_late_says_so(bed):
    with bed.link("--late-max", "0", "--rate", "10Mbit", status=3) as link:
        datagrams(bed, 100)
    assert "DID NOT KEEP UP" in link.stderr and "beyond the bound of 0 us" in link.stderr, link.stderr


@case
def it_ends_after_its_time(bed):
    begin = time.monotonic()
    words = [*bed.middle.enter, bed.weft, "link", LEFT, RIGHT, "--duration", "300ms", "--late-max", "1s"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and time.monotonic() - begin >= 0.3, done
    assert "kept up" in done.stdout and "\x1b" not in done.stdout + done.stderr, done
    assert "frames/s" not in done.stderr, "no line of counts but for a terminal"


@case
def counts_are_told_meanwhile(bed):
    with bed.link("--interval", "100ms") as link:
        lines = [link.process.stderr.readline() for _ in range(2)]
    assert all(line.count("frames/s") == 2 for line in lines), lines


@case
def holes_that_were_filled_are_told(bed):
    octets = 2_000_000
    with tempfile.TemporaryDirectory(prefix="weft-link-") as folder:
        file = os.path.join(folder, "holes")
        began = time.time_ns()
        with bed.link("--holes", file, "--delay", "5ms", "--rate", "200Mbit", "--a-to-b", "loss=1%") as link:
            transfer(bed, octets)
        ended = time.time_ns()
        lines = [json.loads(line) for line in Path(file).read_text().splitlines()]
    there = [line for line in lines if line["to"].startswith(ADDRESS[RIGHT] + ":")]
    # What the sender's kernel sends when it closes is not of the stream's octets.
    assert octets in [line["end"] for line in there if "end" in line], there[-3:]
    filled = [line for line in there if "at_ns" in line]
    # Some hole behind which something had come already is among so many lost segments.
    assert link.there()["lost"] and filled, link.report
    at = 0
    for line in filled:
        assert began < line["at_ns"] < ended, line
        assert at <= line["before"] < line["before"] + line["brought"] < line["after"] <= octets, line
        at = line["after"]


@case
def segments_that_leave_together_are_one_frame_unless_asked_otherwise(bed):
    def came():
        shown = json.loads(bed.run(RIGHT, "ip", "-s", "-j", "link", "show", "eth0").stdout)
        return shown[0]["stats64"]["rx"]["packets"]

    def frames(*options):
        """Those that arrived, and those that the link delivered."""
        before = came()
        with bed.link("--delay", "5ms", "--rate", "500Mbit", *options) as link:
            transfer(bed, 5_000_000)
        return came() - before, link.there()["delivered"]

    arrived, delivered = frames("--separate")
    # Kernels send some of their own accord.
    assert 3000 < delivered <= arrived < delivered + 30, (arrived, delivered)
    arrived, delivered = frames()
    assert arrived < delivered / 2 and delivered > 3000, (arrived, delivered)
    # What is damaged stays so, segment by segment.
    arrived, delivered = frames("--a-to-b", "corrupt=0.01%")
    assert 3000 < delivered <= arrived < delivered + 30, (arrived, delivered)


@case
def mistakes_are_told_with_the_remedy(bed):
    said = bed.refused(LEFT, "nobody0")
    assert "no interface nobody0" in said and RIGHT in said, said
    assert "both ends are left" in bed.refused(LEFT, LEFT)
    assert "no Ethernet frames" in bed.refused(LEFT, "lo")
    ip("-n", bed.middle.name, "link", "set", RIGHT, "mtu", "1400")
    try:
        said = bed.refused(LEFT, RIGHT)
        assert "ip link set left mtu 1400" in said and "--mtu 1400" in said, said
        with bed.link("--mtu", "1400"):
            transfer(bed, 10_000)
    finally:
        ip("-n", bed.middle.name, "link", "set", RIGHT, "mtu", "1500")
        bed.run(LEFT, "ip", "route", "flush", "cache")
    ip("-n", bed.middle.name, "link", "add", "idle", "type", "veth", "peer", "name", "idle-peer")
    try:
        assert "ip link set idle up" in bed.refused(LEFT, "idle")
    finally:
        ip("-n", bed.middle.name, "link", "delete", "idle")
    said = bed.refused(LEFT, RIGHT, prefix=["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw"])
    assert "CAP_NET_RAW" in said and "unshare -rn" in said, said
    for option in ("--pcap", "--holes"):
        said = bed.refused(LEFT, RIGHT, option, "/nowhere/file")
        assert "/nowhere/file" in said and option in said, said
    said = bed.refused(LEFT, RIGHT, "--queue", "20ms")
    assert "--rate" in said, said


def play(bed, name):
    """How a case went, and why."""
    try:
        CASES[name](bed)
    except Skip as reason:
        return "skipped", str(reason)
    except subprocess.CalledProcessError as error:
        return "failed", f"{error}: {error.stderr}"
    except (AssertionError, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        return "failed", f"{type(error).__name__}: {error}"[:3000]
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
    bed = Bed(os.path.realpath(args.weft))
    names = filter(lambda name: re.search(args.only, name), CASES)
    counts = again.play_each(names, lambda name: play(bed, name))
    bed.close()
    return counts.close()


if __name__ == "__main__":
    sys.exit(main())
