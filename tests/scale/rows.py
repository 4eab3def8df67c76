"""What a whole run measures, as rows of the bench's record: a row has the number of connections in its name, as in `1000c`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
from record import Row  # noqa: E402

PATH = "loopback"
RAW_TCP = "raw-tcp"
# As the bench names them: by the connection manager, and by GID and number.
CM = ("weft crc=off", "weft crc=on")
GID = "weft gid crc=on"
COUNTS = (1, 10, 100, 1000, 10000)
PROCESSES = (10, 1000)  # pairs of processes, and connections of each
WRITTEN = 1000  # connections with writes
# Octets, messages under way on each connection, and whether both programs sleep between messages.
ECHOES = ((64, 1, False), (64, 4, False), (16384, 1, False), (64, 1, True))
# Figures beside the one that a row is judged by: of the kernel for each connection's end, before and after traffic; and
# what the process has in memory after it.
KERNEL, KERNEL_BUSY, RESIDENT_BUSY = "kernel_octets", "kernel_after_traffic_octets", "resident_after_traffic_octets"


def row(name, metric, what):
    return Row(PATH, name, metric, what, reference=(RAW_TCP,))


def echo(octets, window, asleep, count):
    """Answers per second with messages under way on all connections at once."""
    return row(f"echo-{octets}-x{window}{event(asleep)}-{count}c", "requests_per_s",
               f"answers of {octets} octets, {window} under way on each of {count:,} connections, {how(asleep)}")


def turns(asleep, count):
    """The round trip of one message at a time, each on the next connection."""
    return row(f"turns-64{event(asleep)}-{count}c", "rtt_us",
               f"round trip of 64 octets, one at a time, each on the next of {count:,} connections, {how(asleep)}")


def storm(count):
    return row(f"storm-{count}c", "connect_all_us", f"{count:,} connects at once, until the last is established")


def memory(count):
    return row(f"memory-{count}c", "process_octets", f"memory of the process for each of {count:,} idle connections")


def written(count):
    """Messages with an RDMA Write ahead of each, both looked at on arrival."""
    return row(f"written-4096-x2-{count}c", "requests_per_s",
               f"answers of 4096 octets with a write of as many ahead of each message, on {count:,} connections")


def processes(number, count):
    return row(f"echo-1024-x1-event-{number}p-{count}c", "requests_per_s",
               f"answers of 1024 octets, {number} pairs of processes with {count:,} connections each, asleep between messages")


def event(asleep):
    return "-event" if asleep else ""


def how(asleep):
    return "asleep between messages" if asleep else "spinning"
