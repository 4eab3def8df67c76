"""What is run: the cases (a program with its options) and the places (who runs it, over which network).

A cell is a case in a place. Everything here is data; how a case is carried out is in play.py.
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import Callable

import checks

DURATION = 5  # seconds, of `-D` in a full run
QUICK_DURATION = 2
CONNECTIONS = 10000  # of the churn
MEETINGS = 200  # of one `meet`
# Seconds that a program may take: it is there for one that hangs. Sixteen of them and more were seen on an idle machine, and others
# are half as fast.
PATIENCE = 120.0
# How often two processes that bring themselves up are started anew, in each place; a third of a second each.
TIMES, TIMES_QUICK = 25, 5
PINGPONGS = ("ibv_rc_pingpong", "ibv_srq_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong")


@dataclass(frozen=True)
class Case:
    """One way to start a program. `{address}` and `{port}` in the arguments are filled in when it runs."""

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


def perftest(program, options, name=None, check=None, kind="pair", timeout=PATIENCE, manager=True):
    shown = " ".join([program, *options])
    connecting = ("-R",) if manager else ()
    arguments = (program, *connecting, "-F", "-p", "{port}", *options)
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
    return perftest(program, (option, *VALUES.get(option, ())), manager=manager)


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


def cases(quick):
    """Every case, in the order of the table in the docs."""
    everything = [
        Case("ibv_devices", "single", ("ibv_devices",), check=checks.only_device),
        Case("ibv_devinfo -v", "single", ("ibv_devinfo", "-v"), check=checks.device_attributes, core=True),
        rping("rping -Vv -C 100 (IPv4)", 4),
        rping("rping -Vv -C 100 (IPv6)", 6),
        ucmatose("ucmatose", ()),
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
    return [*everything, *perftest_all(quick), *by_hand(quick), *ucx(), *mpi(), *scale(), *endings()]


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


def scale():
    """Many connections in one process with traffic on all, and many one after the other."""
    churn = ("churn", "-p", "{port}", "-n", str(CONNECTIONS))
    return [
        ucmatose("ucmatose -c 100 -C 100 -S 1024", ("-c", "100", "-C", "100", "-S", "1024")),
        # -N: perftest looks for the peak in time quadratic in the number of messages.
        perftest("ib_send_bw", ("-q", "100", "-N", "-n", "500")),
        perftest("ib_write_bw", ("-q", "100", "-N", "-n", "500")),
        Case(f"churn ({CONNECTIONS} connects and disconnects)", "pair", (*churn, "-s"), (*churn, "-c", "{address}"),
             checks.says(f"{CONNECTIONS} connections, no growth")),
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


# A quick run is every case in the first of these places and the core cases in the others, which between them
# have every pair of user, network and CRC.
QUICK_PLACES = [
    Place("ordinary", "loopback", "on"),
    Place("ordinary", "loopback", "off"),
    Place("ordinary", "veth", "off"),
    Place("root", "veth", "on"),
    Place("root", "loopback", "off"),
]


def cells(quick):
    """The cells of a quick or a full run, as (case, place)."""
    if not quick:
        return [(case, place) for place in places() for case in cases(quick) if place.crc in case.crc]
    first = QUICK_PLACES[0]
    return [(case, place) for place in QUICK_PLACES for case in cases(quick) if place == first or case.core]
