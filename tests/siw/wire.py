"""What a capture shows of the iWARP connections in it, read without any of Weft's code.

Reads classic pcap of Ethernet and IPv4, puts the TCP streams together and takes them apart as MPA, DDP and RDMAP.
"""

import struct
from dataclasses import dataclass, field
from typing import Optional

REQUEST, REPLY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
START = 20  # octets of a start-up frame before its private data
MARKER_EVERY, MARKER = 512, 4
SYN, ACK = 0x02, 0x10
OPERATIONS = ["Write", "Read Request", "Read Response", "Send", "Send with Invalidate", "Send with SE",
              "Send with SE and Invalidate", "Terminate", "Immediate Data", "Immediate Data with SE",
              "Atomic Request", "Atomic Response"]
LAYERS = ["RDMAP", "DDP", "LLP"]


class Malformed(Exception):
    """The capture breaks the protocol; says where."""


@dataclass
class StartFrame:
    """An MPA Request or Reply."""

    flags: int
    revision: int
    private: bytes

    markers = property(lambda self: bool(self.flags & 0x80))
    crc = property(lambda self: bool(self.flags & 0x40))
    rejected = property(lambda self: bool(self.flags & 0x20))
    large = property(lambda self: bool(self.flags & 0x08))  # siw's own
    enhanced = property(lambda self: bool(self.flags & 0x10) and self.revision >= 2)

    def control(self):
        """The words of RFC 6581: (first, second), or None."""
        return struct.unpack(">HH", self.private[:4]) if self.enhanced else None

    def peer_to_peer(self):
        return self.enhanced and bool(self.control()[0] & 0x8000)

    def ready_to_receive(self):
        """The kinds of ready-to-receive message that it names."""
        if not self.peer_to_peer():
            return []
        first, second = self.control()
        bits = [(first & 0x4000, "Send"), (second & 0x8000, "Write"), (second & 0x4000, "Read Request")]
        return [name for bit, name in bits if bit]


@dataclass
class Fpdu:
    """One FPDU."""

    operation: str
    ulpdu: bytes
    last: bool
    crc_good: bool
    crc_zero: bool

    @property
    def payload(self):
        return self.ulpdu[14:] if self.ulpdu[0] & 0x80 else self.ulpdu[18:]


@dataclass
class Side:
    """What one end sent."""

    start: Optional[StartFrame] = None
    fpdus: list = field(default_factory=list)
    left: int = 0  # octets behind the last whole FPDU


@dataclass
class Connection:
    """One connection: the initiator's side and the responder's."""

    initiator: Side
    responder: Side
    address: str  # of the initiator


@dataclass
class Terminate:
    """A Terminate's control word, in words."""

    layer: str
    error_type: int
    code: int
    mirrored: bool  # in siw's order of bits
    headers: int  # 1 DDP segment length, 2 DDP header, 4 RDMAP header

    def __str__(self):
        form = " (bit-mirrored)" if self.mirrored else ""
        return f"{self.layer}, type {self.error_type}, code {self.code:#04x}{form}"


def terminate(fpdu):
    """Decodes a Terminate in either form. The RFC's has its header bits on top of the third octet, siw's below."""
    first, code, bits = fpdu.payload[:3]
    mirrored = bits & 0xE0 == 0 and bits & 0x07 != 0
    if mirrored:
        first = (first & 0x0F) << 4 | first >> 4
        bits = (bits & 1) << 7 | (bits & 2) << 5 | (bits & 4) << 3
    headers = (bits >> 7 & 1) | (bits >> 6 & 1) << 1 | (bits >> 5 & 1) << 2
    layer = LAYERS[first >> 4] if first >> 4 < len(LAYERS) else f"layer {first >> 4}"
    return Terminate(layer, first & 0x0F, code, mirrored, headers)


def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc_table()


def crc32c(octets):
    crc = 0xFFFFFFFF
    for octet in octets:
        crc = crc >> 8 ^ TABLE[(crc ^ octet) & 0xFF]
    return crc ^ 0xFFFFFFFF


def connections(pcap):
    """The connections of a capture, in the order of their SYNs."""
    streams, order = {}, []
    for source, target, sequence, flags, payload in segments(pcap):
        key = (source, target)
        if flags & SYN:
            streams[key] = (sequence + 1, [])
            if not flags & ACK:
                order.append(key)
        elif payload and key in streams:
            streams[key][1].append((sequence, payload))
    result = []
    for initiator, responder in order:
        both = [assemble(*streams.get(key, (0, []))) for key in ((initiator, responder), (responder, initiator))]
        result.append(read_connection(*both, ".".join(map(str, initiator[0]))))
    return result


def segments(pcap):
    """The TCP segments of a capture: source, target, sequence number, flags, payload."""
    little = pcap[:4] == b"\xd4\xc3\xb2\xa1"
    if not little and pcap[:4] != b"\xa1\xb2\xc3\xd4":
        raise Malformed("not a pcap file")
    at = 24
    while at + 16 <= len(pcap):
        captured, = struct.unpack_from("<I" if little else ">I", pcap, at + 8)
        frame = pcap[at + 16:at + 16 + captured]
        at += 16 + captured
        if frame[12:14] != b"\x08\x00" or len(frame) < 54 or frame[23] != 6:
            continue
        packet = frame[14:14 + struct.unpack_from(">H", frame, 16)[0]]
        tcp = packet[(packet[0] & 0x0F) * 4:]
        ports = struct.unpack_from(">HH", tcp)
        sequence, = struct.unpack_from(">I", tcp, 4)
        source, target = (tuple(packet[12:16]), ports[0]), (tuple(packet[16:20]), ports[1])
        yield source, target, sequence, tcp[13], tcp[(tcp[12] >> 4) * 4:]


def assemble(first, pieces):
    """The octets of one direction, up to the first that was not captured."""
    stream = bytearray()
    for sequence, payload in sorted(pieces, key=lambda piece: piece[0] - first & 0xFFFFFFFF):
        offset = sequence - first & 0xFFFFFFFF
        if offset > len(stream):
            break
        stream[offset:offset + len(payload)] = payload
    return bytes(stream)


def read_connection(asked, answered, address):
    initiator, responder = Side(), Side()
    initiator.start, asked = read_start(asked, REQUEST)
    responder.start, answered = read_start(answered, REPLY)
    # Each side's markers are what the other side asked for.
    for side, octets, other in ((initiator, asked, responder), (responder, answered, initiator)):
        if side.start and other.start:
            read_fpdus(side, octets, other.start.markers)
    return Connection(initiator, responder, address)


def read_start(octets, key):
    if len(octets) < START:
        return None, octets
    if octets[:16] != key:
        raise Malformed(f"starts with {octets[:16]!r}")
    length, = struct.unpack_from(">H", octets, 18)
    frame = StartFrame(octets[16], octets[17], octets[START:START + length])
    return frame, octets[START + length:]


def read_fpdus(side, octets, markers):
    covered = bytearray()  # of the FPDU under way, with its markers
    plain = bytearray()  # without
    for at in range(0, len(octets), MARKER):
        word = octets[at:at + MARKER]
        is_marker = markers and at % MARKER_EVERY == 0
        length = 2 + struct.unpack_from(">H", plain)[0] if len(plain) >= 2 else None
        if not is_marker and length is not None and len(plain) >= length:
            side.fpdus.append(read_fpdu(bytes(plain[2:length]), bytes(covered), word))
            covered.clear()
            plain.clear()
            continue
        covered += word
        if not is_marker:
            plain += word
    side.left = len(plain)


def read_fpdu(ulpdu, covered, crc):
    tagged = bool(ulpdu[0] & 0x80)
    if len(ulpdu) < (14 if tagged else 18):
        raise Malformed(f"ULPDU of {len(ulpdu)} octets")
    number = ulpdu[1] & 0x0F
    operation = OPERATIONS[number] if number < len(OPERATIONS) else f"opcode {number}"
    good = struct.pack("<I", crc32c(covered)) == crc
    return Fpdu(operation, ulpdu, bool(ulpdu[0] & 0x40), good, crc == bytes(4))
