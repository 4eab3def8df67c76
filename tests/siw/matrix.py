"""What siw and Weft do together: the cells. Everything here is data; how a cell is carried out is in meet.py."""

import sys
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Callable, Optional

import shown

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import checks  # noqa: E402

SIW, WEFT = "siw", "Weft"
PINGS = 20
ROUNDS = 20
# In network order, as siw keeps it (RFC 6581, section 9: C and D).
RTR_WRITE, RTR_READ = 0x0080, 0x0040


@dataclass(frozen=True)
class Siw:
    """A build of siw with its parameters."""

    variant: str = "stock"
    parameters: tuple[str, ...] = ()

    def __str__(self):
        return " ".join([self.variant, *self.parameters])


STOCK = Siw()


def tuned(**parameters):
    return Siw("tuned", tuple(f"{name}={value}" for name, value in parameters.items()))


@dataclass(frozen=True)
class Cell:
    """One program between siw and Weft. `{address}`, `{port}` and such in the arguments are filled in when it runs."""

    group: str  # a heading of the report
    name: str
    client: str  # SIW or WEFT; the server is the other
    server_argv: tuple[str, ...]
    client_argv: tuple[str, ...]
    check: Callable = checks.ended_well
    shown: Optional[Callable] = None  # what a capture has to show
    siw: Siw = STOCK
    settings: dict = field(default_factory=dict)  # of Weft
    adapter: bool = False  # Weft has a TCP of its own, with an address that the kernel does not have
    timeout: float = 60.0
    rounds: int = 1  # above 1 the server stays and so many clients come to it, one after the other
    quick: bool = False
    copies: bool = False  # `{file}` at the client is copied to `{copy}` at the server in each round
    guest_preload: str = ""  # a library of the guest's that is loaded into the program there
    delay: int = 0  # milliseconds by which what comes to the guest is held back

    def __str__(self):
        return f"{self.group}: {self.name} [{self.client} client]"

    @property
    def program(self):
        return self.server_argv[0]


def both(make, **options):
    """A cell with each end as the client."""
    return [make(client=client, **options) for client in (SIW, WEFT)]


# The guest is emulated, a hundred times slower than what is here, and perftest is not made for that: a server says that
# it is ready before it listens for the second connection, and a client that hears FIN before siw has noticed that
# its last Send is sent gets an error for it. What comes to the guest is held back, so that it is done by then.
HEAD_START = 60
# Over an iWARP device perftest's receiver grants its sender credits by RDMA Write, over InfiniBand it does not: both
# ends have to see the same kind.
SAME_KIND = {"WEFT_FACE": "iwarp"}


def perftest(group, client, program, options=(), name=None, settings=None, **others):
    arguments = (program, "-R", "-F", "-p", "{port}", *options)
    return Cell(group, name or " ".join([program, *options]), client, arguments, (*arguments, "{address}"),
                checks.perftest_rows(1), delay=HEAD_START, settings={**SAME_KIND, **(settings or {})}, **others)


def rping(group, client, name="rping, data verified", pings=PINGS, **others):
    arguments = ("-Vv", "-C", str(pings), "-a", "{address}", "-p", "{port}")
    return Cell(group, name, client, ("rping", "-s", *arguments), ("rping", "-c", *arguments), checks.rping(pings),
                **others)


def overrun(group, client, operation, options=(), name=None, **others):
    return Cell(group, name or f"{operation} out of bounds", client, ("overrun", "-s", "-p", "{port}"),
                ("overrun", "-c", "{address}", "-p", "{port}", "-o", operation, *options), says_each("held", "refused"),
                **others)


def says_each(server_word, client_word):
    """Each end exits well and says its word."""
    def check(server, client):
        for role, ended, word in (("server", server, server_word), ("client", client, client_word)):
            if ended.status != 0 or word not in ended.output:
                return f"{role}: {ended.how()}{checks.quoted(ended.last_line())}"
        return None
    return check


def refused(client_words):
    """The client is turned away in words; the server goes on waiting and is stopped."""
    def check(_server, client):
        if client.status == 0:
            return "the client was not refused"
        said = client.output + client.errors
        return None if client_words in said else f"client says{checks.quoted(client.last_line())}"
    return check


PERFTEST = ["ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat"]
CRC = {"WEFT_CRC": "on"}
PLAIN = {"WEFT_CRC": "off"}


def cells():
    """Every cell, those of one siw together."""
    return sorted([*stock(), *first_revision(), *variants(), *faults(), *rounds(), *rsockets(), *adapters()],
                  key=lambda cell: str(cell.siw))


def stock():
    """Stock siw, MPA revision 2. Some sizes with the CRC, others without."""
    result = []
    for settings, crc, sizes in ((CRC, "on", (1, 65537)), (PLAIN, "off", (4096, 1 << 20))):
        group = f"Stock siw, revision 2, CRC {crc}"
        result += both(rping, group=group, settings=settings, quick=True,
                       shown=shown.all_of(shown.revision(2), shown.crc(crc == "on")))
        for program, size, client in product(PERFTEST, sizes, (SIW, WEFT)):
            quick = size == (1 if "lat" in program else 1 << 20)
            count = "5" if size == 1 << 20 else "20"
            # Its server speaks first, and stock siw as the client promises no ready-to-receive message.
            first = {"WEFT_SPEAK_FIRST": "on"} if (program, client) == ("ib_write_lat", SIW) else {}
            result.append(perftest(group, client, program, ("-s", str(size), "-n", count), settings={**settings, **first},
                                   quick=quick))
    return result


def first_revision():
    """MPA revision 1 leaves siw's responder without read depth, so there are no reads; as initiator it asks for 2."""
    group = "Revision 1"
    options = {"client": WEFT, "settings": {**CRC, "WEFT_MPA_REVISION": "1"}, "shown": shown.revision(1)}
    result = []
    for program in PERFTEST[:4]:
        result.append(perftest(group, program=program, options=("-s", "4096", "-n", "20"),
                               quick=program == "ib_send_bw", **options))
    return result


def variants():
    """siw with its constants changed."""
    result = []
    group = "CRC required by siw"
    # As responder siw does not insist: it answers a Request without the CRC by a Reply without it.
    for client, settings in ((SIW, PLAIN), (WEFT, CRC)):
        result.append(rping(group, client, siw=tuned(mpa_crc_required=1), settings=settings, shown=shown.crc(True),
                            quick=True))
    result += both(perftest, group=group, program="ib_write_bw", options=("-s", "65536", "-n", "10"),
                   siw=tuned(mpa_crc_required=1), settings=PLAIN)
    result += peer_to_peer()
    group = "Large FPDUs"
    large = {"siw": tuned(try_gso=1), "settings": {**PLAIN, "WEFT_FPDU": "large"}}
    # Those where Weft sends the bulk: siw makes large ones only for a peer that sets siw's own flag in the start-up
    # frame.
    for program, client in (("ib_write_bw", WEFT), ("ib_send_bw", WEFT), ("ib_read_bw", SIW)):
        result.append(perftest(group, client, program, ("-s", "1048576", "-n", "5"), shown=shown.large_fpdus,
                               quick=program == "ib_write_bw", **large))
    group = "Markers (siw has none)"
    markers = {"WEFT_MARKERS": "on"}
    words = {SIW: "RDMA_CM_EVENT_REJECTED", WEFT: "RDMA_CM_EVENT_REJECTED"}
    for client in (SIW, WEFT):
        arguments = ("-a", "{address}", "-p", "{port}")
        result.append(Cell(group, "refused in words", client, ("rping", "-s", *arguments),
                           ("rping", "-c", "-C", "1", *arguments), refused(words[client]), settings=markers))
    return result


def peer_to_peer():
    """Each ready-to-receive message that siw knows, from each end."""
    result = []
    for kind, mask in (("Write", RTR_WRITE), ("Read Request", RTR_READ)):
        result.append(rping("Peer-to-peer", SIW, f"rping, ready-to-receive by {kind}",
                            siw=tuned(peer_to_peer=1, rtr_type=mask), settings=CRC,
                            shown=shown.ready_to_receive(kind), quick=True))
        setting = {"Write": "write", "Read Request": "read"}[kind]
        result.append(rping("Peer-to-peer", WEFT, f"rping, ready-to-receive by {kind}",
                            settings={**CRC, "WEFT_READY_TO_RECEIVE": setting}, shown=shown.ready_to_receive(kind),
                            quick=True))
    result.append(rping("Peer-to-peer", SIW, "rping, siw offers both", siw=tuned(peer_to_peer=1), settings=PLAIN,
                        shown=shown.any_ready_to_receive))
    result.append(rping("Peer-to-peer", WEFT, "rping, off", settings={**CRC, "WEFT_PEER_TO_PEER": "off"},
                        shown=shown.no_ready_to_receive))
    return result


def faults():
    """Asking for memory that was not given."""
    group = "Out of bounds"
    result = []
    for client in (SIW, WEFT):
        result.append(overrun(group, client, "write", settings=PLAIN, quick=True,
                              shown=shown.terminated("DDP", 1, 0x01, mirrored=client == WEFT)))
        result.append(overrun(group, client, "read", settings=CRC,
                              shown=shown.terminated("RDMAP", 1, 0x01, mirrored=client == WEFT)))
    # Not with the peer-to-peer set-up: siw's kernel does not outlive that (see the report's head).
    result.append(overrun(group, WEFT, "write", ("-f",), "write out of bounds in the first FPDUs, not peer-to-peer",
                          settings={**PLAIN, "WEFT_PEER_TO_PEER": "off"},
                          shown=shown.terminated("DDP", 1, 0x01, mirrored=True)))
    return result


def rounds():
    """Many connections, one after the other, and none may stall."""
    result = []
    for settings, name in ((CRC, "peer-to-peer"), ({**PLAIN, "WEFT_PEER_TO_PEER": "off"}, "client and server")):
        for client in (SIW, WEFT):
            arguments = ("-Vv", "-C", "2", "-a", "{address}", "-p", "{port}")
            result.append(Cell("Rounds", f"rping, {ROUNDS} times, {name}", client,
                               ("rping", "-s", "-P", "-a", "{address}", "-p", "{port}"), ("rping", "-c", *arguments),
                               pinged, settings=settings, rounds=ROUNDS, timeout=20.0,
                               quick=client == WEFT and name == "peer-to-peer"))
    return result


def rsockets():
    """rdma-core's rsockets over siw, and Weft's: streams of several sizes, and Writes to mapped memory of the same,
    every octet compared (-T v)."""
    result = []
    sizes = ((64, 20, False), (4096, 20, True), (1 << 20, 5, False))
    for program, client, (size, count, quick) in product(("rstream", "riostream"), (SIW, WEFT), sizes):
        arguments = (program, "-p", "{port}", "-T", "b", "-T", "v", "-S", str(size), "-C", str(count), "-I", "3")
        result.append(Cell("rsockets", f"{program}, {size} octets", client, arguments, (*arguments, "-s", "{address}"),
                           checks.rstream(1), quick=quick))
    for client in (SIW, WEFT):
        result.append(Cell("rsockets", f"rcopy, {ROUNDS} files", client, ("rcopy", "-p", "{port}"),
                           ("rcopy", "{file}", "{address}:{copy}", "-p", "{port}"), client_ended_well, rounds=ROUNDS,
                           timeout=20.0, copies=True, quick=client == WEFT))
        result.append(Cell("rsockets", "a program of ordinary sockets: librspreload there, --ddp require here", client,
                           ("echo", "{port}", "server", "0.0.0.0"), ("echo", "{port}", "client", "{address}"),
                           settings={"WEFT_DDP": "require"}, guest_preload="librspreload.so.1", quick=client == SIW))
    return result


def adapters():
    """Weft on a TCP of its own, on the guest's wire: what the kernel's TCP is not asked for."""
    group = "Weft on its own TCP"
    result = both(rping, group=group, settings=CRC, quick=True, adapter=True)
    result += both(rping, group=group, name="rping, siw requires the CRC", siw=tuned(mpa_crc_required=1), settings=CRC,
                   adapter=True)
    result += both(rping, group=group, name="rping, peer-to-peer", siw=tuned(peer_to_peer=1, rtr_type=RTR_WRITE),
                   settings=CRC, adapter=True)
    for settings, crc, size in ((CRC, "on", 65537), (PLAIN, "off", 1 << 20)):
        for program, client in product(PERFTEST, (SIW, WEFT)):
            first = {"WEFT_SPEAK_FIRST": "on"} if (program, client) == ("ib_write_lat", SIW) else {}
            count = "5" if size == 1 << 20 else "20"
            result.append(perftest(group, client, program, ("-s", str(size), "-n", count),
                                   name=f"{program} -s {size}, CRC {crc}", settings={**settings, **first}, adapter=True))
    for client in (SIW, WEFT):
        arguments = ("-Vv", "-C", "2", "-a", "{address}", "-p", "{port}")
        result.append(Cell(group, f"rping, {ROUNDS} times", client,
                           ("rping", "-s", "-P", "-a", "{address}", "-p", "{port}"), ("rping", "-c", *arguments),
                           pinged, settings=CRC, rounds=ROUNDS, timeout=20.0, adapter=True))
    return result


def client_ended_well(_server, client):
    """The client of a round did; its server stays until it is ended."""
    return checks.ended_well(client, client)


def pinged(_server, client):
    """The client of a round had its pings."""
    return checks.rping(2)(client, client)
