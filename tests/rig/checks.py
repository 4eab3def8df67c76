"""What counts as success, by program.

A check takes how the server and the client ended (`process.Ended`; the client is None for a program that has no
other end) and returns a complaint in words, or None.
"""

import math
import re
from dataclasses import replace

# Words no program prints when all is well.
TROUBLE = re.compile(r"error|fail|couldn't|could not|unable|cannot|mismatch|unexpected|segmentation", re.IGNORECASE)
# perftest's standard deviation of long latencies overflows to "-nan".
ROW = re.compile(r"^[ \t]*\d+(?:[ \t]+(?:[\d.]+|-?nan|inf))+[ \t]*$", re.MULTILINE)
# Before each row perftest measures the clock by which it counts. When it was interrupted at the wrong place it says
# this, takes the frequency for 0 and goes on: the row has rates of 0 or latencies of "inf". A row in some ten thousand.
NO_CLOCK = "Correlation coefficient r^2"


def nothing(_server, _client):
    """The case itself has judged."""
    return None


def ended_well(server, client):
    """Both ends exited with status 0 and printed no word of trouble."""
    for role, ended in (("server", server), ("client", client)):
        if ended is None:
            continue
        if ended.status != 0:
            return f"{role}: {ended.how()}{quoted(ended.last_line())}"
        for line in (ended.output + ended.errors).splitlines():
            if TROUBLE.search(line):
                return f"{role} says{quoted(line.strip())}"
    return None


def client_ended_well(server, client):
    """The same of the client of a server that was stopped when it was no longer needed."""
    return ended_well(replace(server, status=0), client)


def says(words):
    """Both ends print `words`."""
    def check(server, client):
        silent = [role for role, ended in (("server", server), ("client", client)) if words not in ended.output]
        return ended_well(server, client) or (f"{silent[0]} does not say{quoted(words)}" if silent else None)
    return check


def alone_says(words):
    """A program without another end prints `words`."""
    def check(program, _client):
        return ended_well(program, None) or (None if words in program.output else f"does not say{quoted(words)}")
    return check


def same_sum(server, client):
    """Both ends print the same sum over what was sent (workers.c)."""
    complaint = ended_well(server, client)
    if complaint:
        return complaint
    sums = [re.search(r"sum (\d+)$", ended.output, re.MULTILINE) for ended in (server, client)]
    if not all(sums):
        return "an end says no sum"
    return None if sums[0][1] == sums[1][1] else f"arrived {sums[0][1]} of {sums[1][1]}"


def refused(words):
    """A program ends by itself with a status that is not 0, and Weft says `words`."""
    def check(program, _client):
        if program.status <= 0:
            return f"not refused: {program.how()}"
        return None if words in program.errors else f"does not say{quoted(words)}"
    return check


def rstream(count):
    """Both ends printed `count` rows of results and compared every octet (-T v)."""
    def check(server, client):
        complaint = ended_well(server, client)
        if complaint:
            return complaint
        for role, ended in (("server", server), ("client", client)):
            rows = re.findall(r"^\w+(?: +[\d.]+[kmg]?){4} +[\d.]+s ", ended.output, re.MULTILINE)
            if len(rows) != count:
                return f"{role} printed {len(rows)} of {count} rows of results"
        return None
    return check


def fio(count, both):
    """The client carried out `count` requests, and where they are Sends the server received as many and found each block
    right."""
    def check(server, client):
        complaint = ended_well(server, client)
        if complaint:
            return complaint
        for role, ended, wanted in (("client", client, f"total=0,{count},"), ("server", server, f"total={count},0,")):
            issued = re.search(r"issued rwts: (total=\d+,\d+,)", ended.output)
            if (role == "client" or both) and (issued is None or issued[1] != wanted):
                return f"{role} issued {issued[1] if issued else 'nothing'}: not {wanted}"
        return None
    return check


def rping(count):
    """Both ends saw `count` pings; they compare the octets themselves (-V)."""
    def check(server, client):
        complaint = ended_well(server, client)
        if complaint:
            return complaint
        for role, ended in (("server", server), ("client", client)):
            seen = len(re.findall(r"ping data: rdma-ping-\d+", ended.output))
            if seen != count:
                return f"{role} saw {seen} of {count} pings"
        return None
    return check


def perftest_rows(count):
    """The client printed `count` rows of results, each with figures above zero but those for which it had no clock."""
    def check(server, client):
        complaint = ended_well(server, client)
        if complaint:
            return complaint
        rows = result_rows(client.output)
        if len(rows) != count:
            return f"client printed {len(rows)} of {count} rows of results"
        without = [row for row in rows if max(row[2:]) <= 0 or math.inf in row]
        excused = (client.output + client.errors).count(NO_CLOCK)
        return f"client measured nothing at {without[0][0]:.0f} octets" if len(without) > excused else None
    return check


def result_rows(output):
    """perftest's table: a list of numbers for each row (octets, iterations, figures)."""
    _, header, table = output.partition("#bytes")
    return [[float(field) for field in row.group(0).split()] for row in ROW.finditer(table)] if header else []


def figure(case, client):
    """The result worth a place in the report: the last row's, with its unit; None where there is none."""
    rows = result_rows(client.output) if client and case.program.startswith("ib_") else []
    if not rows:
        return None
    row, header = rows[-1], client.output.partition("#bytes")[2].splitlines()[0]
    if "BW average" in header:
        return {"octets": row[0], "value": row[3], "unit": "MiB/s"}
    # Latency tables: min, max, typical ... ; with a duration there is only the average.
    typical = row[4] if "t_typical" in header else row[2]
    return {"octets": row[0], "value": typical, "unit": "us"}


def ucx_perftest(server, client):
    """The client printed a final line."""
    final = re.search(r"^Final:\s+\d+\s+[\d.]+", client.output, re.MULTILINE)
    return ended_well(server, client) or (None if final else "client printed no final line")


def fi_pingpong(count):
    """Both ends printed `count` rows of results, with as many answers as messages; they compare the octets themselves
    (-c)."""
    def check(server, client):
        complaint = ended_well(server, client)
        if complaint:
            return complaint
        for role, ended in (("server", server), ("client", client)):
            rows = re.findall(r"^\w+ +\d+ +=\d+ +[\d.]+\w", ended.output, re.MULTILINE)
            if len(rows) != count:
                return f"{role} printed {len(rows)} of {count} rows of results"
        return None
    return check


def ucx_transports(program, _client):
    """`ucx_info -d` could open both transports that the device serves. (It speaks of errors when all is well.)"""
    if program.status != 0:
        return program.how()
    for transport in ("rc_verbs", "ud_verbs"):
        _, found, rest = program.output.partition(f"Transport: {transport}\n")
        if not found or "weft0:1" not in rest.splitlines()[0]:
            return f"no {transport} on weft0:1"
        if "failed to open" in rest.partition("Transport:")[0]:
            return f"{transport} cannot be opened"
    return None


def cmtime(server, client):
    """The client printed a row for each step, with a time."""
    rows = re.findall(r"^(\w[\w ]*?) *: +([\d.]+)", client.output, re.MULTILINE)
    steps = {name for name, total in rows if float(total) > 0}
    missing = {"connect", "disconnect"} - steps
    return client_ended_well(server, client) or (f"no time for {sorted(missing)}" if missing else None)


def dapltest(server, client):
    """The client printed what it transferred in every way, and that it came to its end."""
    complaint = client_ended_well(server, client)
    if complaint:
        return complaint
    ways = dict(re.findall(r"^Total ([\w ]+?) *: +([\d.]+) MB", client.output, re.MULTILINE))
    missing = {"Send", "Recv", "RDMA Read", "RDMA Write"} - {way for way, total in ways.items() if float(total) > 0}
    if missing:
        return f"nothing was transferred by {sorted(missing)}"
    return None if "End of Work" in client.output else "client did not come to its end"


def qperf(tests):
    """The client printed a result above zero for every test."""
    def check(server, client):
        complaint = client_ended_well(server, client)
        if complaint:
            return complaint
        rows = re.findall(r"^(\w+):\n +\w+ += +([\d.]+)", client.output, re.MULTILINE)
        missing = set(tests) - {name for name, value in rows if float(value) > 0}
        return f"no result for {sorted(missing)}" if missing else None
    return check


def only_device(program, _client):
    """`ibv_devices` lists weft0 and no other."""
    listed = [line.split()[0] for line in program.output.splitlines()[2:] if line.split()]
    return ended_well(program, None) or (None if listed == ["weft0"] else f"devices listed: {listed}")


def device_attributes(program, _client):
    """`ibv_devinfo -v` shows an active port with an Ethernet link and says nothing on stderr."""
    complaint = ended_well(program, None)
    if complaint:
        return complaint
    if program.errors.strip():
        return f"stderr{quoted(program.errors.strip().splitlines()[0])}"
    for wanted in (r"hca_id:\s+weft0", r"transport:\s+InfiniBand \(0\)", r"state:\s+PORT_ACTIVE \(4\)"):
        if not re.search(wanted, program.output):
            return f"no line like {wanted!r}"
    return None


def quoted(text):
    return f": {text[:160]}" if text else ""
