#!/usr/bin/env python3
"""A program that knows nothing of Weft: sends in ways that say something to the kernel, or that few programs use.

    never.py PORT       to that port of 127.0.0.1, where a plain receiver is

Says for each way, as a line of JSON, with which error it was refused; null where it was not.
"""
import errno
import json
import os
import resource
import socket
import struct
import sys
import tempfile

to = ("127.0.0.1", int(sys.argv[1]))
MSG_CONFIRM, SO_TIMESTAMPING, UDP_SEGMENT = 0x800, 37, 103


def made():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def with_option():
    one = made()
    one.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, 16)
    one.sendto(b"an option", to)


def with_file():
    one = made()
    one.connect(to)
    with tempfile.TemporaryFile() as file:
        file.write(b"a file")
        file.flush()
        os.sendfile(one.fileno(), file.fileno(), 0, 6)


def to_another_than_its_peer():
    with made() as other, made() as one:
        other.bind(("127.0.0.1", 0))
        one.connect(other.getsockname())
        one.sendto(b"elsewhere", to)


def without_descriptors():
    one = made()
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    one.sendto(b"no descriptor", to)
    for number in taken:
        os.close(number)


WAYS = {
    "buffers": lambda: made().sendmsg([b"x"] * 40, [], 0, to),
    "confirm": lambda: made().sendto(b"confirm", MSG_CONFIRM, to),
    "more": lambda: made().sendto(b"more", socket.MSG_MORE, to),
    "control": lambda: made().sendmsg(
        [b"control"], [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("H", 1000))], 0, to),
    "option": with_option,
    "file": with_file,
    "elsewhere": to_another_than_its_peer,
    "descriptors": without_descriptors,
}
refused = {}
for name, send in WAYS.items():
    try:
        send()
        refused[name] = None
    except OSError as error:
        # Python has another name for the same number.
        is_unsupported = error.errno == errno.EOPNOTSUPP
        refused[name] = "EOPNOTSUPP" if is_unsupported else errno.errorcode[error.errno]
print(json.dumps(refused), flush=True)
