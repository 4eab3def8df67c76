"""The other end of a carrier of datagrams, made by hand: what it says is what a test wants it to.

The formats are those of proto/uoe: greeting.rs, frame.rs, control.rs and proof.rs.
"""
import os
import socket
import struct
import time

WORD = (1 << 64) - 1
MIX = 0x243F6A8885A308D3, 0x13198A2E03707345
GREETING_LEN = 64
OPEN, PROVE, ACCEPT, REFUSE, RING = 1, 2, 3, 4, 11
# What a bell has in the place of a mark's number.
BELL = 0xFFFFFFFF


def fold(one, other):
    product = one * other
    return (product & WORD) ^ (product >> 64)


def turned(word, bits):
    return (word << bits | word >> (64 - bits)) & WORD


class Key:
    """Of what the end with the nonce `sender` says."""

    def __init__(self, sender, receiver):
        def half(at):
            mixed = fold(int.from_bytes(sender[at:at + 8], "big") ^ MIX[0], MIX[1])
            return fold(mixed ^ int.from_bytes(receiver[at:at + 8], "big"), MIX[0]) ^ turned(mixed, 29)

        self.halves = half(0), half(8)

    def check(self, offset, length, channel):
        mixed = fold(offset ^ self.halves[0], (length << 16 | channel) ^ self.halves[1])
        return fold(mixed ^ self.halves[1], MIX[0]) >> 16 & 0xFFFFFFFF


def end(address, port):
    return bytes(10) + b"\xff\xff" + socket.inet_aton(address) + struct.pack(">H", port)


def proof(nonce, number=0, challenge=bytes(16)):
    """A datagram of Weft's own: a proof, a mark or a bell."""
    return b"WeftUDP\0" + nonce + struct.pack(">I", number) + challenge


def connected(address, port, until):
    """A connection to a process that may be about to listen."""
    while True:
        try:
            return socket.create_connection((address, port))
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


class Peer:
    """A carrier to the process that listens there. `udp` is the socket whose datagrams it says to bring; `instance` are
    the eight octets that tell this process from others."""

    def __init__(self, address, port, patience=10, instance=None):
        self.carrier = connected(address, port, time.monotonic() + patience)
        self.carrier.settimeout(patience)
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind((address, 0))
        own, instance = os.urandom(16), instance or os.urandom(8)
        self.carrier.sendall(b"WeftUOE\0\1\1" + bytes(6) + instance + bytes(8) + own + bytes(16))
        theirs = self.exactly(GREETING_LEN)[32:48]
        self.key, self.offset = Key(own, theirs), GREETING_LEN

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.carrier.close()
        self.udp.close()

    def exactly(self, octets):
        came = b""
        while len(came) < octets:
            now = self.carrier.recv(octets - len(came))
            if not now:
                raise EOFError(f"the carrier ended behind {came!r}")
            came += now
        return came

    def say(self, channel, payload):
        """A frame."""
        check = self.key.check(self.offset, len(payload), channel)
        self.carrier.sendall(struct.pack(">HHI", len(payload), channel, check) + payload)
        self.offset += 8 + len(payload)

    def hear(self, kind):
        """The next control message of this kind, without the kind."""
        while True:
            length, channel, _ = struct.unpack(">HHI", self.exactly(8))
            payload = self.exactly(length)
            if channel == 0 and payload[0] == kind:
                return payload[1:]

    def ask_for(self, channel, target):
        """Says that a channel to the socket at `target` is wanted."""
        control = struct.pack(">BH", OPEN, channel) + end(*self.udp.getsockname()) + end(*target) + os.urandom(16)
        self.say(0, control)

    def open(self, channel, target):
        """Has a channel to the socket at `target` opened; gives the nonce that marks and bells have."""
        self.ask_for(channel, target)
        nonce = self.hear(PROVE)[2:]
        challenge = os.urandom(16)
        self.udp.sendto(proof(nonce, 0, challenge), target)
        if self.hear(ACCEPT)[2:] != challenge:
            raise OSError("another challenge comes back")
        return nonce
