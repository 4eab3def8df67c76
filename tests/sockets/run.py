#!/usr/bin/env python3
"""Builds the sockets conformance program and runs it, in every way that is asked for, with the same expectations.

    tests/sockets/run.py --plain                      on the kernel's sockets, without anything between
    tests/sockets/run.py --hooks WEFT                 under `WEFT run`: hooks that change nothing, and each kind of socket
    tests/sockets/run.py --hooks WEFT --modes always  every datagram gathered and every receive coalesced
    tests/sockets/run.py --plain --builds plain,fortified,sanitized --storm

Builds: plain; fortified (-O2, _FORTIFY_SOURCE=3, 64-bit file names); sanitized (address and undefined behaviour).
What stands behind -- goes to the program. The last line is `N passed, N failed, N skipped`, of all runs.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "rig"))
from counts import Counts, of_cases  # noqa: E402

IS_ROOT = os.geteuid() == 0
FLAGS = {
    "plain": [],
    "fortified": ["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3", "-D_FILE_OFFSET_BITS=64"],
    "sanitized": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"],
}
# A rule that names no socket of the program: the hooks are there and follow every descriptor, and change nothing.
MODES = {
    "pass": ["--udp", "gso port=1"],
    "gso": ["--udp", "gso"],
    "always": ["--udp", "gso", "--udp-busy-after", "0"],
    # A process has no carrier to itself: what is looked at is that nothing else changes.
    "uoe": ["--udp", "uoe prefer"],
    # But by a rule it has, and then each datagram goes over carriers.
    "uoe-carried": ["--udp", "uoe require same-process=carrier"],
    # The same beside an adapter, in a namespace that has an interface for it.
    "uoe-adapter": ["--udp", "uoe prefer over=adapter", "--adapter=inline", "--interface=packet:weft0",
                    "--address=198.51.100.7/24"],
    "uoe-adapter-carried": ["--udp", "uoe require same-process=carrier over=adapter", "--adapter=inline",
                            "--interface=packet:weft0", "--address=198.51.100.7/24"],
    "ddp-off": ["--ddp", "off"],
    # Both ends over DDP; a listener over DDP whose clients know nothing of it.
    "ddp": ["--ddp", "require"],
    "ddp-crc": ["--ddp", "require", "--ddp-crc", "on"],
    "ddp-plain": ["--ddp", "require direction=listen"],
    # Over DDP where the other end is found to be Weft in time.
    "ddp-prefer": ["--ddp", "prefer"],
}
USUAL = "pass,gso,uoe,uoe-carried,uoe-adapter,uoe-adapter-carried,ddp-off,ddp,ddp-crc,ddp-plain,ddp-prefer"
# Sockets that a mode's rules do not name: they are the kernel's, as all are with `pass`.
UNTOUCHED = dict.fromkeys(("gso", "always", "uoe", "uoe-carried", "uoe-adapter", "uoe-adapter-carried"),
                           "tcp|unix-") | dict.fromkeys(
    ("ddp-off", "ddp", "ddp-crc", "ddp-plain", "ddp-prefer"), "udp|unix-")
# What is known to differ, and has to: a case here that passes is a failure, so that the list stays true. In a storm of
# signals, and where some connections are DDP and others are not, these cases are left out, as are those of SOMETIMES.
DIFFERENT = {
    "ddp": {
        f"tcp{version}.{case}": reason
        for version in "46"
        for reason, cases in {
            "what a client sends to begin DDP is sent at once, and a listener that waits for octets has some": [
                "begin.a-listener-that-waits-for-octets",
            ],
        }.items()
        for case in cases
    },
    "always": {
        f"udp{version}.blocked-recv-goes-on-though-its-number-is-closed":
            "a wait for coalesced datagrams is a look at the queue; whose number is closed meanwhile is EBADF"
        for version in "46"
    },
}
DIFFERENT["ddp-crc"] = DIFFERENT["ddp"]


def of_udp(reasons):
    """The reason of each case, of lists of cases by reason; a case without a family is of both."""
    names = {case: reason for reason, cases in reasons.items() for case in cases}
    both = {f"udp{version}.{case}": reason for case, reason in names.items() for version in "46"
            if not case.startswith("udp")}
    return both | {case: reason for case, reason in names.items() if case.startswith("udp")}


REFUSED = "a send that a connection cannot bring is refused where a rule requires one"
UNBROUGHT = "who wants to be told what no carrier brings, or has a filter or SO_REUSEPORT, takes no carriers"
DIFFERENT["uoe-carried"] = of_udp({
    REFUSED: ["control-message-of-none-is-refused", "msg_more-makes-one-of-several", "segment-of-too-many-is-refused",
              "udp6.out-of-order-flags-are-refused"],
    UNBROUGHT: ["packet-info", "timestamp", "timestamp-in-nanoseconds", "reuseport-shares-by-sender",
                "udp4.original-destination", "udp4.tos-is-told-and-set-for-one", "udp4.ttl-is-told-and-set-for-one",
                "udp6.hop-limit-and-class-are-told-and-set"],
    "what the C library reads and writes by itself is the kernel's, and so are sockets that it does that with": [
        "aio.one-that-waits-its-turn-is-cancelled", "aio.reads-one-datagram-or-what-is-there",
        "aio.reads-what-comes-later", "aio.writes-behind-what-was-sent", "stdio.after-sends-of-the-programs-own"],
    "where nobody has a port nobody says so: what is sent there waits": [
        "refused-comes-back-to-a-connected-one", "refused-on-the-error-queue"],
    "there is no descriptor for a connection": ["limit.reached-by-socket-and-dup"],
    "a datagram of Weft's own makes a socket ready for a moment": ["epoll.edge-triggered"],
})
# What differs by the time that something takes, so that neither a pass nor a failure says anything.
UNHOOKED = ("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait")
SOMETIMES = {
    "ddp": {
        f"tcp{version}.unhooked.{call}-finds-room":
            "a receive buffer smaller than a segment makes a socket readable by framing alone, and no hook sees the wait"
        for version in "46" for call in UNHOOKED
    },
    "uoe": {
        f"udp{version}.blocked-recv-goes-on-though-its-number-is-closed":
            "a wait at a socket that may have carriers is a look at the queue; whose number is closed meanwhile is EBADF"
        for version in "46"
    },
    "ddp-prefer": {
        f"tcp{version}.unhooked.{call}-reads-a-flow":
            "the Request, which follows the answer to a question, makes a socket readable, and no hook sees the wait"
        for version in "46" for call in UNHOOKED
    },
}
# Those of the first four kinds wait, in vain, until the program gives up.
SOMETIMES["uoe-carried"] = SOMETIMES["uoe"] | of_udp({
    REFUSED: ["coalescing-gives-one-of-several", "confirm-dontroute-and-proxied-flags",
              "connected-and-sendto-elsewhere", "cork-makes-one-of-several", "udp4.packet-info-chooses-the-source",
              "segment-by-control-message", "segment-by-option", "sendfile.makes-datagrams",
              "without-coalescing-segments-come-apart"],
    UNBROUGHT: ["control-message-cut-short", "option.filter-drops", "peek-offset", "timestamp-of-each-in-recvmmsg"],
    "what a process sends in the last 60 ms before it ends is dropped where its carrier is not up by then": [
        "fork.of-a-fork", "fork.the-child-sends", "pass.to-a-child"],
    "of a socket that was handed on, one copy has carriers": ["pass.a-socket-to-oneself"],
    "who takes datagrams at once is waited for": ["a-full-receiver-drops"],
    "datagrams of several senders come as their channels are there": ["from-many-senders-each-is-named"],
})
DIFFERENT["uoe-adapter-carried"] = DIFFERENT["uoe-carried"]
ONE_USER = {} if IS_ROOT else {"inherited.not-by-another-user": "the namespace has one user"}
SOMETIMES["uoe-adapter"] = SOMETIMES["uoe"] | ONE_USER
SOMETIMES["uoe-adapter-carried"] = SOMETIMES["uoe-carried"] | ONE_USER
SOMETIMES["ddp-crc"] = SOMETIMES["ddp"] | {
    f"tcp{version}.{case}":
        "an FPDU with a CRC is delivered whole, so the receive buffer has room for one, and all that the case sends fits"
    for version in "46" for case in (
        "blocked-send-woken-by-shutdown", "signal-in-send-tells-what-was-taken",
        "closing.with-linger-0-drops-what-was-not-sent", "closing.with-linger-gives-up-and-loses-nothing",
        "counts.to-be-acknowledged-while-nobody-reads",
        "ddp.peers-that-take-nothing-hold-an-eighth-of-the-descriptors")
}
# Where many of the cases that are known to differ wait, and in vain, others run meanwhile.
IN_VAIN = dict.fromkeys(("uoe-carried", "uoe-adapter-carried"), ["--width", "12"])
# A network of its own, with the interface that a mode's adapter has.
IN_A_NAMESPACE = ["unshare", *([] if IS_ROOT else ["--map-root-user"]), "--net", "sh", "-c",
                  "ip link set lo up && ip link add weft0 up type veth peer name weft1 && ip link set weft1 up && "
                  "exec \"$@\"", "sh"]
# Cases that say nothing in a mode: the peers of the first play DDP themselves, without a CRC; and of what the second
# send a part may be left, or none, as above.
MEANINGLESS = {"ddp-crc": r"tcp[46]\.(foreign\.|cut\..*-by-a-signal-with-a-part-sent)"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plain", action="store_true", help="on the kernel's sockets")
    parser.add_argument("--hooks", metavar="WEFT", type=pathlib.Path, help="under this built command")
    parser.add_argument("--modes", default=USUAL, help=f"of {', '.join(MODES)}, with commas ({USUAL})")
    parser.add_argument("--builds", default="plain", help=f"of {', '.join(FLAGS)}, with commas (plain)")
    parser.add_argument("--storm", action="store_true", help="once more of each, under a storm of signals")
    parser.add_argument("--touched", action="store_true", help="of each mode the cases of sockets that its rules name")
    parser.add_argument("--work", type=pathlib.Path, help="where the programs are built (a temporary folder)")
    parser.add_argument("rest", nargs="*", help="options of the program, behind --")
    arguments = parser.parse_args()
    builds = arguments.builds.split(",")
    unknown = [build for build in builds if build not in FLAGS]
    unknown += [mode for mode in arguments.modes.split(",") if mode not in MODES]
    if unknown or not (arguments.plain or arguments.hooks):
        parser.error(f"no such build or mode: {unknown[0]}" if unknown else "say --plain, --hooks WEFT or both")
    total = Counts()
    modes = arguments.modes.split(",")
    with_adapter = [mode for mode in modes if "--adapter=inline" in MODES[mode]]
    if arguments.hooks and with_adapter and subprocess.run([*IN_A_NAMESPACE, "true"]).returncode:
        for mode in with_adapter:
            print(f"SKIP hooks {mode}: this system gives no network namespace")
            total.add("skipped")
        arguments.modes = ",".join(mode for mode in modes if mode not in with_adapter)
    with tempfile.TemporaryDirectory() as scratch:
        work = (arguments.work or pathlib.Path(scratch)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        for build in builds:
            program = work / f"sockets-conformance-{build}"
            if subprocess.run([HERE / "build.sh", program, *FLAGS[build]]).returncode:
                print(f"FAIL build {build}: it does not compile (package gcc)")
                total.add("failed")
                continue
            for title, prefix, mode in ways(arguments, build):
                command = [*prefix, program, "--again", *arguments.rest]
                for storm in [[], ["--storm"]] if arguments.storm else [[]]:
                    total += of_cases(" ".join([title, *storm]), [*command, *apart(mode, arguments.touched, storm, work), *storm])
    return total.close()


def apart(mode, touched, storm, work):
    """Options for the cases that differ in this mode: those that fail by intention are known to, others left out, as
    are those of sockets that the mode does not touch where only `touched` ones are asked for."""
    always, sometimes = DIFFERENT.get(mode, {}), dict(SOMETIMES.get(mode, {}))
    if mode == "ddp-prefer":
        sometimes |= DIFFERENT["ddp"] | SOMETIMES["ddp"]
    if storm:
        always, sometimes = {}, sometimes | always
    options = list(IN_VAIN.get(mode, []))
    if always:
        listed = work / "known"
        listed.write_text("".join(f"{case} {reason}\n" for case, reason in always.items()))
        options += ["--known", listed]
    left_out = [f"{re.escape(case)}$" for case in sometimes]
    if mode in MEANINGLESS:
        left_out.append(MEANINGLESS[mode])
    if touched and mode in UNTOUCHED:
        left_out.append(UNTOUCHED[mode])
    if left_out:
        options += ["--without", f"^({'|'.join(left_out)})"]
    return options


def ways(arguments, build):
    """A name for each way to run the program, what stands in front of it, and the mode, whose cases may differ."""
    if arguments.plain:
        yield f"kernel, {build}", [], None
    if arguments.hooks:
        # A preloaded library comes before the sanitizers' own, which would complain.
        loosened = ["env", "ASAN_OPTIONS=verify_asan_link_order=0"] if build == "sanitized" else []
        for mode in arguments.modes.split(","):
            namespace = IN_A_NAMESPACE if "--adapter=inline" in MODES[mode] else []
            command = [*namespace, *loosened, arguments.hooks, "run", "--anyway", *MODES[mode], "--"]
            yield f"hooks {mode}, {build}", command, mode


if __name__ == "__main__":
    sys.exit(main())
