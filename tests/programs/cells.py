"""What is run: the cases (a program with its options) and the places (who runs it, over which network).

A cell is a case in a place. Everything here is data; how a case is carried out is in play.py.
"""

import sys
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Callable

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import checks  # noqa: E402

DURATION = 5  # seconds, of `-D` in a full run
QUICK_DURATION = 2
CONNECTIONS = 10000  # of the churn
MEETINGS = 200  # of one `meet`
# Seconds that a program may take: it is there for one that hangs. Sixteen of them and more were seen on an idle
# machine, and others are half as fast.
PATIENCE = 120.0
# How often two processes that bring themselves up are started anew, in each place; a third of a second each.
TIMES, TIMES_QUICK = 25, 5
DTEST = 15828  # the port at which uDAPL's dtest and dtestx tell the other end where they are
# The same of fio, a second and a half each.
FIO_TIMES = 20
FIO_SIZES = {"4k": (4096, 1024), "64k": (65536, 256), "1m": (1 << 20, 64)}  # octets of a block, and how many
MEMLOCK = 8 << 20  # octets that an ordinary user may lock (stage.py)
PINGPONGS = ("ibv_rc_pingpong", "ibv_srq_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong")


@dataclass(frozen=True)
class Case:
    """One way to start a program. In the arguments are filled in when it runs: `{address}` and `{port}` of the server,
    `{other}`, the client's address, `{weft}`, the command under test, `{copy}`, a file to be made, and `{launcher}`, which starts a command on the
    host that has an address (`LAUNCHER ADDRESS COMMAND`); for uDAPL `{reached}` and `{dat_conf}`."""

    name: str
    kind: str  # a function of play.py, of those in its KINDS
    server: tuple[str, ...]
    client: tuple[str, ...] = ()
    check: Callable = checks.ended_well
    family: int = 4  # which of the place's addresses
    timeout: float = PATIENCE
    core: bool = False  # part of every place in a quick run
    crc: tuple[str, ...] = ("on", "off")  # with which it is played in a full run
    times: int = 1  # of the kind "again"
    connections: int = 1  # that its client makes to the server's port before there is traffic
    users: tuple[str, ...] = ("ordinary", "root")  # by whom it can be played
    networks: tuple[str, ...] = ("loopback", "veth")  # over which networks it is worth it
    first: str = "loopback"  # over which a quick run plays it
    port: int = 0  # the server's, of a program that has it built in; 0 is any
    datagrams: bool = False  # the server's port is of UDP

    def suits(self, place):
        return place.user in self.users and place.network in self.networks and place.crc in self.crc

    @property
    def program(self):
        return next(word for word in self.server if word != "env" and "=" not in word)


@dataclass(frozen=True)
class Place:
    """Who runs a program, over which network, with or without the CRC."""

    user: str  # ordinary, root
    network: str  # loopback, veth
    crc: str  # on, off

    def __str__(self):
        return f"{self.user}, {self.network}, CRC {self.crc}"


# The options of perftest and the programs that have them (`PROGRAM --help`; test_driver.py compares).
PERFTEST = {
    "ib_send_bw": "-a -b -q -e -I -l --use-srq -D",
    "ib_send_lat": "-a -e -I --use-srq -D",
    "ib_write_bw": "-a -b -q -I -l -D",
    "ib_write_lat": "-a -I -D",
    "ib_read_bw": "-a -b -q -e -l -D",
    "ib_read_lat": "-a -e -D",
    "ib_atomic_bw": "-A -b -q -e -l -D",
    "ib_atomic_lat": "-A -e -D",
}
# What follows an option. Inline data needs a message that fits (-s), or -I would change nothing.
# perftest wants a number of iterations that is a multiple of the list.
VALUES = {"-A": ("CMP_AND_SWAP",), "-q": ("16",), "-I": ("64", "-s", "64"), "-l": ("16", "-n", "1600")}
CORE = {"ib_send_bw", "ib_write_bw -b", "ib_read_bw -q 16", "ib_write_lat"}


# The tests of qperf for connected queue pairs; the last two compare every answer.
QPERF = (
    "rc_bw", "rc_bi_bw", "rc_lat", "rc_rdma_write_bw", "rc_rdma_write_lat", "rc_rdma_write_poll_lat", "rc_rdma_read_bw",
    "rc_rdma_read_lat", "rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add",
)


def perftest(program, options, name=None, check=None, kind="pair", timeout=PATIENCE, manager=True, unnamed=()):
    """A case of perftest; the options that are `unnamed` stand in no name."""
    shown = " ".join([program, *options])
    connecting = ("-R",) if manager else ()
    arguments = (program, *connecting, "-F", "-p", "{port}", *options, *unnamed)
    # Options change nothing about the CRC, and without -R a program connects in another way and then does the same.
    crc = ("on", "off") if manager and (not options or shown in CORE) else ("on",)
    return Case(
        name or " ".join([program, *connecting, *options]),
        kind,
        arguments,
        (*arguments, "{address}"),
        check or checks.perftest_rows(1),
        timeout=timeout,
        core=manager and shown in CORE,
        crc=crc,
    )


def perftest_option(program, option, quick, manager=True):
    connecting = "-R " if manager else ""
    # Where the same is run with -R as well, a short run shows as much.
    quick = quick or not manager
    if option == "-a":
        # Sizes from 2 to 2^23: 23 rows. A thousand iterations of each move 16 GB, so a quick run makes fewer.
        fewer = ("-n", "100") if quick else ()
        return perftest(program, ("-a", *fewer), f"{program} {connecting}-a", checks.perftest_rows(23),
                        timeout=240.0, manager=manager)
    if option == "-D":
        seconds = QUICK_DURATION if quick else DURATION
        return perftest(program, ("-D", str(seconds)), f"{program} {connecting}-D {DURATION}", manager=manager)
    # perftest compares each of its posts with each other one for its peak, which takes 12 s of 80,000.
    fewer = ("-n", "1000") if quick and option == "-q" else ()
    return perftest(program, (option, *VALUES.get(option, ())), manager=manager, unnamed=fewer)


def perftest_all(quick, manager=True):
    """Every program of perftest, plainly and with each of its options."""
    for program, options in PERFTEST.items():
        yield perftest(program, (), manager=manager)
        for option in options.split():
            yield perftest_option(program, option, quick, manager)


def rping(name, family):
    arguments = ("-Vv", "-C", "100", "-a", "{address}", "-p", "{port}")
    return Case(
        name, "pair", ("rping", "-s", *arguments), ("rping", "-c", *arguments),
        checks.rping(100), family=family, core=True,
    )


def ucmatose(name, options, timeout=PATIENCE):
    arguments = ("ucmatose", "-p", "{port}", *options)
    return Case(name, "pair", arguments, (*arguments, "-s", "{address}"), checks.says("return status 0"),
                timeout=timeout)


def udaddy(name, options, family=4):
    """The datagram service of the connection manager. Its port is built in."""
    arguments = ("udaddy", *options)
    return Case(name, "pair", arguments, (*arguments, "-s", "{address}"), checks.says("return status 0"),
                family=family, port=7174, datagrams=True, core=family == 4, crc=("on",))


def rsockets():
    """Programs of rsocket(7). rstream compares every octet (-T v), of its own table of sizes and of one size in each of
    its ways to wait, and so does riostream, which writes to mapped memory and looks at that; of what rcopy has copied
    the two files are compared."""
    def rstream(name, options, check, family=4, program="rstream", **more):
        arguments = (program, "-p", "{port}", "-T", "v", *options)
        return Case(f"{name} ({'IPv4' if family == 4 else 'IPv6'})", "pair", (*arguments, "-b", "{address}"),
                    (*arguments, "-s", "{address}"), check, family=family, crc=("on",), **more)
    bulk = ("-S", "65536", "-C", "1000")
    ways = {"b": "blocking", "n": "not blocking", "a": "by rpoll", "f": "a forked server"}

    def riostream(name, options, **more):
        return rstream(f"riostream -T v {name}", options, checks.rstream(1), program="riostream", **more)
    return [
        rstream("rstream -T v -T b", ("-T", "b"), checks.rstream(8), core=True),
        *[rstream(f"rstream -T v -T {way}, {meaning}", ("-T", way, *bulk), checks.rstream(1))
          for way, meaning in ways.items()],
        rstream("rstream -T v -T b -f ipv6", ("-T", "b", "-f", "ipv6", *bulk), checks.rstream(1), family=6),
        Case("rcopy", "copies", ("rcopy", "-p", "{port}"), ("rcopy", "{weft}", "{address}:{copy}", "-p", "{port}"),
             checks.client_ended_well, crc=("on",), core=True),
        riostream("-S 64 -C 1 -I 1000", ("-S", "64", "-C", "1", "-I", "1000"), core=True),
        *[riostream(f"-T {way}, {ways[way]}", ("-T", way, *bulk)) for way in "bna"],
        riostream("-f ipv6", ("-f", "ipv6", *bulk), family=6),
        Case("udpong (rsockets of datagrams are refused in words)", "single", ("udpong", "-p", "{port}"),
             check=checks.refused("rsockets are served as streams"), crc=("on",)),
    ]


def cases(quick):
    """Every case, in the order of the table in the docs."""
    everything = [
        Case("ibv_devices", "single", ("ibv_devices",), check=checks.only_device),
        Case("ibv_devinfo -v", "single", ("ibv_devinfo", "-v"), check=checks.device_attributes, core=True),
        rping("rping -Vv -C 100 (IPv4)", 4),
        rping("rping -Vv -C 100 (IPv6)", 6),
        ucmatose("ucmatose", ()),
        udaddy("udaddy (IPv4)", ()),
        udaddy("udaddy (IPv6)", ("-f", "ipv6", "-b", "::"), family=6),
        udaddy("udaddy -c 10 -C 100 -S 1024", ("-c", "10", "-C", "100", "-S", "1024")),
        Case("mckey (multicast is refused in words)", "single", ("mckey", "-m", "232.1.2.3", "-b", "{address}"),
             check=checks.refused("multicast is not served"), crc=("on",)),
        Case("rdma_server, rdma_client", "pair", ("rdma_server", "-p", "{port}"),
             ("rdma_client", "-s", "{address}", "-p", "{port}"), checks.says("end 0")),
        # Sends inline without having asked for room.
        Case("rdma_xserver, rdma_xclient", "pair", ("rdma_xserver", "-p", "{port}"),
             ("rdma_xclient", "-s", "{address}", "-p", "{port}"), checks.says("end 0"), crc=("on",)),
        Case("cmtime -c 100", "service", ("cmtime", "-p", "{port}"),
             ("cmtime", "-s", "{address}", "-p", "{port}", "-c", "100"), checks.cmtime, crc=("on",)),
        Case("qperf -cm 1", "service", ("qperf", "-lp", "{port}"),
             ("qperf", "-lp", "{port}", "{address}", "-cm", "1", "-t", "1", *QPERF), checks.qperf(QPERF), crc=("on",)),
    ]
    return [*everything, *rsockets(), *fio(quick), *udapl(), *perftest_all(quick), *by_hand(quick), *ucx(), *libfabric(quick),
            *mpi(), *mpi_on_two_hosts(), *forked(), *scale(), *endings()]


def udapl():
    """uDAPL's own tests, over its provider for the connection manager (cma) and the one that brings queue pairs up
    itself (scm)."""
    dapltest_ports = {"cma": 62000, "scm": 63000}
    transfers = ("client", "SR", "256", "server", "SR", "256", "client", "RW", "4096", "server", "RW", "4096",
                 "client", "RR", "4096", "server", "RR", "4096")
    for provider in ("cma", "scm"):
        def of(*words):
            return ("env", "DAT_OVERRIDE={dat_conf}", *words)
        dtest = of("dtest", "-P", provider, "-b", "4096", "-B", "10")
        yield Case(f"dtest (uDAPL, {provider})", "pair", (*dtest, "-s"), (*dtest, "-h", "{reached}"),
                   checks.says("DAPL Test Complete. PASSED"), port=DTEST, core=True, crc=("on",))
        yield Case(f"dapltest (uDAPL, {provider})", "service", of("dapltest", "-T", "S", "-D", provider),
                   of("dapltest", "-T", "T", "-s", "{reached}", "-D", provider, "-i", "100", "-t", "2", "-w", "2", *transfers),
                   checks.dapltest, port=dapltest_ports[provider], crc=("on",))


def fio(quick):
    """fio's engine `rdma`: a client that disconnects as soon as its last request is complete. Of Sends the receiving
    end compares every block."""
    def one(verb, size, depth):
        octets, count = FIO_SIZES[size]
        program = ("fio", "--name=job", "--ioengine=rdma", "--port={port}", f"--bs={octets}", f"--size={count * octets}",
                   f"--iodepth={depth}", "--verify_state_save=0")
        verify = ("--verify=crc32c",) if verb == "send" else ()
        # fio asks for as much locked memory as its buffers have, and an ordinary user has 8 MiB.
        large, core = octets * depth > MEMLOCK, verb == "send" and depth == 16
        users = ("root",) if large else ("ordinary", "root") if core else ("ordinary",)
        return Case(
            f"fio --verb={verb} --bs={size} --iodepth={depth}", "again", (*program, "--rw=read", *verify),
            (*program, "--rw=write", f"--verb={verb}", "--hostname={address}", *verify, "--do_verify=0"),
            checks.fio(count, both=verb == "send"), crc=("on",), users=users,
            first="veth" if large else "loopback", core=core, times=1 if quick else FIO_TIMES,
        )
    return [one(*axes) for axes in product(("write", "read", "send"), FIO_SIZES, (1, 16))]


def by_hand(quick):
    """Programs that bring their queue pairs up themselves, from a GID and a number."""
    pingpongs = [
        Case(f"{program} -g 0{options}", "pair", (program, "-g", "0", "-p", "{port}", *options.split()),
             (program, "-g", "0", "-p", "{port}", *options.split(), "{address}"), checks.says("1000 iters in"),
             crc=("on",))
        for program in PINGPONGS
        for options in ("", " -e")
    ]
    unreliable = [
        perftest("ib_write_bw", ("-c", "UC"), manager=False),
        perftest("ib_send_bw", ("-c", "UD"), manager=False),
        perftest("ib_send_bw", ("-c", "UD", "-b", "-q", "4", "-n", "500"), manager=False),
        perftest("ib_send_bw", ("-c", "UD", "-e", "-s", "64", "--use-srq"), manager=False),
        perftest("ib_send_lat", ("-c", "UD"), manager=False),
        perftest("ib_send_lat", ("-c", "UD", "-e"), manager=False),
    ]
    return [*pingpongs, *perftest_all(quick, manager=False), *unreliable, *meetings(quick)]


def meetings(quick):
    """Bring-ups in every order of the two ends, and one after the other."""
    arguments = ("meet", "-p", "{port}", "-n", str(MEETINGS))
    orders = {"server first": "pair", "client first": "client_first", "both at once": "together"}
    meets = [
        Case(f"meet ({MEETINGS} bring-ups, {order})", kind, (*arguments, "-s", "-r", str(seed)),
             (*arguments, "-c", "{address}", "-r", str(seed)), checks.says(f"{MEETINGS} met"),
             core=kind == "client_first", family=6 if kind == "together" else 4)
        for seed, (order, kind) in enumerate(orders.items())
    ]
    times = TIMES_QUICK if quick else TIMES
    pingpong = ("-g", "0", "-p", "{port}", "-n", "100")
    pingpongs = [
        Case(f"{program} -g 0, again and again", "again", (program, *pingpong), (program, *pingpong, "{address}"),
             checks.says("100 iters in"), times=times, crc=("on",))
        for program in PINGPONGS
    ]
    return meets + pingpongs


def ucx():
    """UCX finds the device, and moves messages over its verbs transports."""
    def perftest_of(transport, test, size):
        program = ("env", f"UCX_TLS={transport}", "UCX_NET_DEVICES=weft0:1", "ucx_perftest",
                   "-t", test, "-s", str(size), "-n", "1000", "-w", "100", "-p", "{port}")
        return Case(f"ucx_perftest -t {test} -s {size} (UCX_TLS={transport})", "pair", program,
                    (*program, "{address}"), checks.ucx_perftest, crc=("on",))
    tests = {"tag_lat": 8, "tag_bw": 1 << 20, "ucp_am_bw": 4096, "ucp_put_bw": 1 << 20, "ucp_get": 65536, "ucp_add": 8}
    return [
        Case("ucx_info -d", "single", ("ucx_info", "-d"), check=checks.ucx_transports, crc=("on",)),
        *[perftest_of("rc", test, size) for test, size in tests.items()],
        *[perftest_of("ud", test, size) for test, size in (("tag_lat", 8), ("tag_bw", 65536))],
    ]


def libfabric(quick):
    """libfabric's verbs provider: connected endpoints, reliable datagrams over them, and datagrams. The server gives no
    source address, and names as its own the first of the device's that it finds."""
    kinds = {"msg": "verbs", "rdm": "verbs;ofi_rxm", "dgram": "verbs"}
    # A datagram ends at the path's MTU that the device says, 4096 octets, so two of the six sizes are left out.
    rows = {"msg": 6, "rdm": 6, "dgram": 4}
    # It puts the largest message into both directions at once, and compares every octet.
    iterations = "10" if quick else "100"
    def pingpong(kind, provider):
        arguments = ("fi_pingpong", "-p", provider, "-e", kind, "-c", "-I", iterations)
        return Case(f"fi_pingpong -p '{provider}' -e {kind} -c", "pair", (*arguments, "-B", "{port}"),
                    (*arguments, "-P", "{port}", "{address}"), checks.fi_pingpong(rows[kind]), first="veth")
    return [pingpong(kind, provider) for kind, provider in kinds.items()]


def mpi():
    """MPI over UCX over the device, every answer checked (mpi_check.c)."""
    settings = ("OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "UCX_TLS=rc,self",
                "UCX_NET_DEVICES=weft0:1")
    return [
        Case(f"mpi_check{also}, {ranks} processes of Open MPI over UCX", "single",
             ("env", *settings, "mpirun.openmpi", "-n", str(ranks), "--oversubscribe", "--mca", "pml", "ucx",
              "mpi_check", *also.split()), check=checks.alone_says("answers right"), crc=("on",))
        for ranks, also in ((2, ""), (4, ""), (2, " -o"), (4, " -o"))
    ]


def mpi_on_two_hosts():
    """A process of MPI on each of two hosts. Whoever starts one there gives it an environment of its own, as sshd does,
    so weft is started there again. Entering a network namespace needs root."""
    started = ("{weft}", "run", "--")
    openmpi = ("env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "mpirun.openmpi", "-n", "2",
               "--host", "{address},{other}", "--mca", "plm_rsh_agent", "{launcher}", "--mca", "pml", "cm", "--mca", "mtl",
               "ofi", "--mca", "mtl_ofi_provider_include", "verbs;ofi_rxm", *started, "mpi_check")
    # Debian builds MPICH for UCX.
    mpich = ("env", "UCX_TLS=rc,self", "UCX_NET_DEVICES=weft0:1", "mpiexec.hydra", "-n", "2", "-hosts",
             "{address},{other}", "-launcher", "rsh", "-launcher-exec", "{launcher}", *started, "mpi_check.mpich")
    # Without one-sided work over ofi: Open MPI 4.1 has none there, over TCP neither.
    return [
        Case(f"mpi_check{also}, {name}, a process on each host", "single", (*command, *also.split()),
             check=checks.alone_says("answers right"), crc=("on",), users=("root",), networks=("veth",), first="veth")
        for name, command, also in (("Open MPI over ofi", openmpi, ""), ("MPICH over UCX", mpich, ""),
                                    ("MPICH over UCX", mpich, " -o"))
    ]


def forked():
    """A pool of Python's workers, forked from a process that has the device open, each with the device opened anew."""
    return [Case("forkpool.py, three rounds of four forked workers", "single", ("forkpool.py", "-w", "4", "-r", "3"),
                 check=checks.alone_says("forkpool: 600 answers right"), crc=("on",))]


def scale():
    """Many connections in one process with traffic on all, many one after the other, and many threads on few cores."""
    churn = ("churn", "-p", "{port}", "-n", str(CONNECTIONS))
    workers = ("workers", "-p", "{port}")
    return [
        ucmatose("ucmatose -c 100 -C 100 -S 1024", ("-c", "100", "-C", "100", "-S", "1024")),
        # -N: perftest looks for the peak in time quadratic in the number of messages.
        perftest("ib_send_bw", ("-q", "100", "-N", "-n", "500")),
        perftest("ib_write_bw", ("-q", "100", "-N", "-n", "500")),
        Case(f"churn ({CONNECTIONS} connects and disconnects)", "pair", (*churn, "-s"), (*churn, "-c", "{address}"),
             checks.says(f"{CONNECTIONS} connections, no growth")),
        Case("workers, four that spin and one that hands them batches", "pair", (*workers, "-s"),
             (*workers, "-c", "{address}", "-t", "1"), checks.same_sum),
    ]


def endings():
    """One end goes away midway; the other has to notice."""
    # -N: the server looks for the peak between two sizes, seconds long on a busy machine, and notices nothing then.
    long_sweep = ("-a", "-n", "20000", "-N")
    endless = ("-C", "100000000", "-a", "{address}", "-p", "{port}")
    servant, pinger = ("rping", "-s", *endless), ("rping", "-c", *endless)
    return [
        # The first connection is for the numbers of the second; both ends sleep a second in between, and a server whose
        # client goes away then waits for another.
        *[replace(perftest(program, long_sweep, f"{program} -R -a, client stopped by Ctrl-C", checks.nothing,
                           "interrupt"), connections=2)
          for program in ("ib_send_bw", "ib_write_bw")],
        Case("rping, server killed (SIGKILL)", "kill_server", servant, pinger, checks.nothing),
        Case("rping, client killed (SIGKILL)", "kill_client", servant, pinger, checks.nothing),
    ]


def places():
    return [Place(*axes) for axes in product(("ordinary", "root"), ("loopback", "veth"), ("on", "off"))]


# A quick run is every case in the first of these places that suits it and is of its first network, and the core cases
# in the others too; the places between them have every pair of user, network and CRC.
QUICK_PLACES = [
    Place("ordinary", "loopback", "on"),
    Place("ordinary", "loopback", "off"),
    Place("ordinary", "veth", "off"),
    Place("root", "veth", "on"),
    Place("root", "loopback", "off"),
]


def first_place(case):
    return next(place for place in QUICK_PLACES if case.suits(place) and place.network == case.first)


def cells(quick):
    """The cells of a quick or a full run, as (case, place)."""
    if not quick:
        return [(case, place) for place in places() for case in cases(quick) if case.suits(place)]
    return [(case, place) for place in QUICK_PLACES for case in cases(quick)
            if place == first_place(case) or (case.core and case.suits(place))]
