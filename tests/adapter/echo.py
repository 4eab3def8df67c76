#!/usr/bin/env python3
"""Asks a host for an echo until the reply has all of the request.

    tests/adapter/echo.py ADDRESS OCTETS

Takes raw sockets: root, or a namespace of one's own. Ends with 1 where no reply comes in time, or a wrong one.
"""

import socket
import struct
import sys
import time

# Seconds between requests, as the first may be lost while the neighbour is asked for, and until one gives up.
AGAIN, LIMIT = 0.3, 20


def checksum(octets):
    octets += b"\0" * (len(octets) % 2)
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def main():
    to, size = sys.argv[1], int(sys.argv[2])
    data = bytes(at * 7 & 255 for at in range(size))
    if ":" in to:
        request, reply = 128, 129
        # The kernel computes the checksum, and gives replies without the IP header.
        end = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        message = struct.pack("!BBHHH", request, 0, 0, 9, 1) + data
    else:
        request, reply = 8, 0
        end = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        message = struct.pack("!BBHHH", request, 0, 0, 9, 1) + data
        message = struct.pack("!BBHHH", request, 0, checksum(message), 9, 1) + data
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    end.settimeout(AGAIN)
    limit = time.monotonic() + LIMIT
    while time.monotonic() < limit:
        end.sendto(message, (to, 0))
        asked = time.monotonic()
        while time.monotonic() < asked + AGAIN:
            try:
                came = end.recv(1 << 17)
            except TimeoutError:
                break
            came = came if ":" in to else came[(came[0] & 15) * 4:]
            if came[0] == reply and came[4:8] == message[4:8]:
                return 0 if came[8:] == data else 1
    return 1


if __name__ == "__main__":
    sys.exit(main())
