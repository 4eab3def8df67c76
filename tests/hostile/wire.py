"""The wire, for whoever does not mean well: MPA start-up frames and FPDUs as octets, well formed or not."""

import socket
import struct

REQUEST = b"MPA ID Req Frame"
REPLY = b"MPA ID Rep Frame"
MOST = 20  # seconds that a peer waits for anything


def _table():
    rows = []
    for octet in range(256):
        for _ in range(8):
            octet = octet >> 1 ^ (0x82F63B78 if octet & 1 else 0)
        rows.append(octet)
    return rows


TABLE = _table()


def crc32c(octets):
    crc = 0xFFFFFFFF
    for octet in octets:
        crc = crc >> 8 ^ TABLE[(crc ^ octet) & 0xFF]
    return crc ^ 0xFFFFFFFF


def request(private=b"", flags=0x10, revision=2, depths=(0x8004, 0x8004)):
    """An MPA Request for a peer-to-peer connection, ready by a Write; `flags`: 0x40 is the CRC, 0x10 has depths."""
    body = (struct.pack(">HH", *depths) if flags & 0x10 else b"") + private
    return REQUEST + bytes([flags, revision]) + struct.pack(">H", len(body)) + body


def fpdu(ulpdu, crc=True, length=None):
    """An FPDU around those octets; `length`: what it says of itself instead of the truth."""
    octets = struct.pack(">H", len(ulpdu) if length is None else length) + ulpdu
    octets += bytes(-len(octets) % 4)
    return octets + struct.pack("<I", crc32c(octets) if crc else 0)


def write(stag, to, payload=b"", last=True):
    return bytes([0x81 | 0x40 * last, 0x40]) + struct.pack(">IQ", stag, to) + payload


def untagged(opcode, queue, msn, mo, payload=b"", last=True, stag=0):
    return bytes([0x01 | 0x40 * last, 0x40 | opcode]) + struct.pack(">IIII", stag, queue, msn, mo) + payload


def send(msn, payload=b"", mo=0, last=True):
    return untagged(3, 0, msn, mo, payload, last)


def send_invalidate(msn, stag, payload=b""):
    return untagged(4, 0, msn, 0, payload, stag=stag)


def read_request(msn, size, stag, to):
    return untagged(1, 1, msn, 0, struct.pack(">IQIIQ", 7, 0, size, stag, to))


def read_response(stag, to, payload):
    return bytes([0xC1, 0x42]) + struct.pack(">IQ", stag, to) + payload


def fetch_and_add(msn, stag, to, add):
    return untagged(10, 1, msn, 0, struct.pack(">IIIQQQQQ", 0, 1, stag, to, add, 0, 0, 0))


class Ended(Exception):
    """The other end ended the connection, or is silent."""


class Peer:
    """A connection that was taken through its start-up, and what its server opened to it."""

    def __init__(self, to, source=None, private=b""):
        self.socket = connect(to, source)
        self.heard = bytearray()
        try:
            self.socket.sendall(request(private))
            reply = self.receive(20)
            if reply[:16] != REPLY or reply[16] & 0x20:
                raise Ended("rejected")
            self.crc = bool(reply[16] & 0x40)
            body = self.receive(struct.unpack(">H", reply[18:20])[0])
            self.address, self.stag, self.length = struct.unpack("=QII", body[4:20])
            self.put(write(1, 0))
        except (OSError, struct.error, IndexError) as error:
            self.close()
            raise Ended(str(error)) from error
        except Ended:
            self.close()
            raise

    def receive(self, octets):
        got = b""
        while len(got) < octets:
            more = self.socket.recv(octets - len(got))
            if not more:
                raise Ended("closed")
            got += more
        self.heard += got
        return got

    def put(self, *ulpdus):
        try:
            self.socket.sendall(b"".join(fpdu(ulpdu, self.crc) for ulpdu in ulpdus))
        except OSError as error:
            raise Ended(str(error)) from error

    def put_octets(self, octets):
        try:
            self.socket.sendall(octets)
        except OSError as error:
            raise Ended(str(error)) from error

    def drain(self, seconds=1.0, most=1 << 20):
        """What comes until the other end ends it, or has been silent for so long."""
        self.socket.settimeout(seconds)
        start = len(self.heard)
        try:
            while len(self.heard) - start < most:
                more = self.socket.recv(65536)
                if not more:
                    break
                self.heard += more
        except OSError:
            pass
        return bytes(self.heard[start:])

    def reset(self):
        cut(self.socket)

    def close(self):
        self.socket.close()


def connect(to, source=None):
    made = socket.socket()
    made.settimeout(MOST)
    try:
        if source:
            made.bind((source, 0))
        made.connect(to)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        made.close()
        raise
    return made


def cut(connection):
    """Closes a connection by RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
