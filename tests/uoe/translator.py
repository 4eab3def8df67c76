"""A box that joins two networks and changes a machine's address on the way: static network address translation.

    translator.py IN OUT INSIDE OUTSIDE

The machine INSIDE, at the device IN, has the address OUTSIDE for whoever is at the device OUT. Says "ready".
"""
import select
import socket
import struct
import sys

ETH_P_ALL, ARP, IPV4 = 3, 0x0806, 0x0800
OUTGOING = 4  # linux/if_packet.h
# Where checksums stand in the headers of TCP and UDP.
CHECKSUM_AT = {socket.IPPROTO_TCP: 16, socket.IPPROTO_UDP: 6}


def checksum(octets):
    octets += b"\0" * (len(octets) % 2)
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def replace(frame, places, old, new):
    for at in places:
        if frame[at:at + 4] == old:
            frame[at:at + 4] = new


def translate(frame, old, new):
    """Changes an address in a frame, and the checksums that go with it. Senders leave those to the device."""
    kind, = struct.unpack_from("!H", frame, 12)
    if kind == ARP:
        replace(frame, (28, 38), old, new)
    if kind != IPV4:
        return frame
    replace(frame, (26, 30), old, new)
    header = 4 * (frame[14] & 15)
    end = 14 + struct.unpack_from("!H", frame, 16)[0]
    frame[24:26] = b"\0\0"
    struct.pack_into("!H", frame, 24, checksum(bytes(frame[14:14 + header])))
    payload, protocol = 14 + header, frame[23]
    if protocol in CHECKSUM_AT:
        at = payload + CHECKSUM_AT[protocol]
        frame[at:at + 2] = b"\0\0"
        pseudo = bytes(frame[26:34]) + struct.pack("!HH", protocol, end - payload)
        struct.pack_into("!H", frame, at, checksum(pseudo + bytes(frame[payload:end])) or 0xFFFF)
    return frame


def main():
    devices, (inside, outside) = sys.argv[1:3], map(socket.inet_aton, sys.argv[3:5])
    sockets = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) for _ in devices]
    for held, device in zip(sockets, devices):
        held.bind((device, 0))
    within, without = sockets
    ways = {within: (without, inside, outside), without: (within, outside, inside)}
    print("ready", flush=True)
    while True:
        for held in select.select(sockets, [], [])[0]:
            octets, (_, _, kind, *_) = held.recvfrom(70000)
            to, old, new = ways[held]
            if kind != OUTGOING:
                try:
                    to.send(translate(bytearray(octets), old, new))
                except OSError:
                    pass  # the device's queue is full: it is lost, as on any machine


main()
