#!/usr/bin/env python3
"""Datagrams of every length and grouping, from a peer that does as it likes; each says its own length and checksum.

    datagrams.py -r PORT SECONDS     receives, and prints how many were right; fails at one that is not
    datagrams.py -s PORT SECONDS     sends

The sender mixes single datagrams, empty ones too, with bursts for the kernel to cut (UDP_SEGMENT), whose pieces a
receiver that takes coalesced datagrams (UDP_GRO) gets as one.
"""

import random
import socket
import struct
import sys
import time
import zlib

UDP_SEGMENT = 103  # linux/udp.h
SOL_UDP = socket.IPPROTO_UDP
HEAD = struct.Struct("=II")
LARGEST = 65507
EDGES = (0, 1, 7, 8, 9, 1448, 1472, 9000, LARGEST)
MOST_PIECES = 64


def datagram(length):
    """One of so many octets; too short a one is zeros."""
    if length < HEAD.size:
        return bytes(length)
    body = random.randbytes(min(length - HEAD.size, 32)).ljust(length - HEAD.size, b"w")
    return HEAD.pack(length, zlib.crc32(body)) + body


def is_right(octets):
    if len(octets) < HEAD.size:
        return not any(octets)
    length, checksum = HEAD.unpack_from(octets)
    return (length, checksum) == (len(octets), zlib.crc32(octets[HEAD.size:]))


def send(port, seconds):
    until = time.monotonic() + seconds
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        mouth.connect(("127.0.0.1", port))
        while time.monotonic() < until:
            try:
                if random.random() < 0.4:
                    mouth.send(datagram(random.choice((*EDGES, random.randint(0, LARGEST)))))
                    continue
                size = random.choice((8, 9, 100, 1448, random.randint(8, 1448)))
                pieces = random.randint(1, min(MOST_PIECES, LARGEST // size))
                last = datagram(random.randint(8, size))
                burst = b"".join(datagram(size) for _ in range(pieces - 1)) + last
                mouth.sendmsg([burst], [(SOL_UDP, UDP_SEGMENT, struct.pack("=H", size))])
            except OSError:
                # Nobody listens yet, or any more.
                time.sleep(0.001)


def receive(port, seconds):
    until = time.monotonic() + seconds
    right = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        ear.bind(("127.0.0.1", port))
        ear.settimeout(0.2)
        while time.monotonic() < until:
            try:
                octets = ear.recv(65535)
            except TimeoutError:
                continue
            if not is_right(octets):
                sys.exit(f"datagrams: one of {len(octets)} octets is not what was sent: {octets[:16].hex()}")
            right += 1
    print(f"datagrams: {right} right")


def main():
    what, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    (receive if what == "-r" else send)(port, seconds)


if __name__ == "__main__":
    main()
