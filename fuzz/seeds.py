#!/usr/bin/env python3
"""Makes the seeds of the corpora: short pieces of the captures of siw, and FPDUs of every kind.

Run it from anywhere; needs tshark. The result is committed, so this is only needed when the form of the inputs changes.
"""
import pathlib
import struct
import subprocess

HERE = pathlib.Path(__file__).parent
CAPTURES = HERE.parent / "tests" / "data" / "siw"
LONGEST = 600


def crc32c(data):
    crc = 0xFFFFFFFF
    for octet in data:
        crc ^= octet
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


def fpdu(ulpdu):
    octets = struct.pack(">H", len(ulpdu)) + ulpdu
    octets += bytes(-len(octets) % 4)
    return octets + crc32c(octets)


def tagged(opcode, stag, to, payload=b"", last=True):
    return fpdu(bytes([0xC1 if last else 0x81, 0x40 | opcode]) + struct.pack(">IQ", stag, to) + payload)


def untagged(opcode, qn, msn, body=b"", mo=0, last=True, invalidate=0):
    control = bytes([0x41 if last else 0x01, 0x40 | opcode])
    return fpdu(control + struct.pack(">IIII", invalidate, qn, msn, mo) + body)


def marked(octets):
    """A leading marker in front of the first FPDU, whose CRC then covers it."""
    octets = bytes(4) + octets[:-4]
    return octets + crc32c(octets)


READ = struct.pack(">IQIIQ", 0xAABBCC01, 0x1000, 0x2000, 0x11223302, 0x7F0000003000)
SEND = untagged(3, 0, 1, b"hello")
STREAMS = {
    "send": SEND,
    "send_segments": untagged(3, 0, 1, bytes(24), last=False) + untagged(3, 0, 1, bytes(16), mo=24),
    "send_between": untagged(3, 0, 1, b"abcd", last=False)
    + tagged(0, 7, 0, b"wxyz")
    + untagged(3, 0, 1, b"efgh", mo=4),
    "send_invalidate": untagged(4, 0, 1, b"\1\2", invalidate=0xCAFE0001),
    "send_solicited": untagged(5, 0, 1) + untagged(6, 0, 2, b"x"),
    "write": tagged(0, 0x1234, 1 << 32, bytes(range(8))),
    "write_segments": tagged(0, 9, 0, bytes(9), last=False) + tagged(0, 9, 9, b"end"),
    "write_top": tagged(0, 9, 2**64 - 8, bytes(8), last=False) + tagged(0, 9, 0, b"wrap"),
    "read_request": untagged(1, 1, 1, READ) + untagged(1, 1, 2, READ),
    "read_response": tagged(2, 0xAABBCC01, 0x1000, b"\xde\xad\xbe\xef"),
    "rtr_write": tagged(0, 1, 0) + SEND,
    "immediate": untagged(8, 0, 1, bytes(8)) + untagged(9, 0, 2, bytes(8)),
    "atomic": untagged(0xA, 1, 1, bytes(52)) + untagged(0xB, 3, 1, bytes(12)),
    "terminate": untagged(7, 2, 1, b"\x20\x02\0\0"),
    "terminate_ddp": untagged(7, 2, 1, b"\x12\x02\xc0\0\0\x76" + SEND[2:20]),
    "terminate_siw": untagged(7, 2, 1, b"\x10\x02\x07\0\0\x1c\x41\x41" + struct.pack(">IIII", 0, 1, 1, 0) + READ),
    "bad_version": fpdu(b"\xc0\x40" + bytes(12)),
    "bad_opcode": untagged(0xF, 0, 1),
    "bad_queue": untagged(3, 5, 1),
    "bad_msn": untagged(3, 0, 2),
    "bad_mo": untagged(3, 0, 1, mo=1),
    "short": bytes(8),
}
REQUEST = b"MPA ID Req Frame"
REPLY = b"MPA ID Rep Frame"
FRAMES = {
    "rev1": (0x20, REQUEST + b"\x40\x01\0\0"),
    "rev1_data": (0x20, REQUEST + b"\0\x01\0\x05hello"),
    "rev1_refused": (0x00, REQUEST + b"\xc0\x01\0\0"),
    "rev2": (0x22, REQUEST + b"\x10\x02\0\x04\0\x01\0\x01"),
    "rev2_plain": (0x22, REQUEST + b"\0\x02\0\0"),
    "rev2_rtr": (0x22, REQUEST + b"\x50\x02\0\x04\x80\x20\xc0\x20"),
    "rev2_all": (0x2E, REQUEST + b"\xd0\x02\0\x09\xff\xff\xff\xffhello"),
    "rev2_refused": (0x02, REQUEST + b"\x10\x02\0\x04\x80\x01\x80\x01"),
    "rev3": (0x22, REQUEST + b"\x10\x03\0\x04\0\x01\0\x01"),
    "early": (0x22, REQUEST + b"\x40\x01\0\0" + SEND),
    "long": (0x22, REQUEST + b"\0\x01\x02\x01"),
    "no_block": (0x22, REQUEST + b"\x10\x02\0\x02ab"),
    "not_mpa": (0x22, b"GET / HTTP/1.1\r\n\r\n"),
    "reply1": (0x01, REPLY + b"\x40\x01\0\0" + SEND),
    "reply1_rejected": (0x01, REPLY + b"\x20\x01\0\x02no"),
    "reply1_asked_2": (0x03, REPLY + b"\0\x01\0\0"),
    "reply2": (0x03, REPLY + b"\x10\x02\0\x04\0\x01\0\x01"),
    "reply2_rtr": (0x17, REPLY + b"\x50\x02\0\x04\x80\x20\x40\x01" + SEND),
    "reply2_deep": (0x03, REPLY + b"\x10\x02\0\x04\0\xc8\0\xc8"),
    "reply2_no_rtr": (0x13, REPLY + b"\x10\x02\0\x04\xc0\x01\0\x01"),
    "reply2_markers": (0x1F, REPLY + b"\xd0\x02\0\x04\x80\x20\x80\x01"),
    "two_initiators": (0x03, REQUEST + b"\x40\x01\0\0"),
}

# The grammar of UDP's rules (0) or one that has options (1), and a text.
RULES = {
    "udp": b"\0off port=53; gso program=iperf3; gso direction=send address=10.0.0.0/8 port=5001-5010",
    "udp_off": b"\0off",
    "udp_ipv6": b"\0gso address=2001:db8::/32; gso address=::ffff:10.0.0.0/104; off address=::1",
    "udp_wrong": b"\0gso prot=1; of; gso port=5-4; ; off address=10.0.0.0/33",
    "options": b"\1require crc=off depth=7 direction=listen port=1; prefer depth=3; off direction=both",
    "options_wrong": b"\1prefer depth=deep crc; off crc=on",
    "twice": b"\1off port=1 port=2",
    "empty": b"\1",
    "not_text": b"\1off program=\xff\xc3; off \xe2\x80\x83 port=9",
}

# Streams as rsockets has them: own STag 0x1234 at 0x1000, the list of targets at STag 0x5678, offset 0x2000.
OWN, TO, LIST, LIST_TO = 0x1234, 0x1000, 0x5678, 0x2000


def word(msn, value, order="<"):
    return untagged(3, 0, msn, struct.pack(order + "I", value))


FOUR = tagged(0, OWN, TO, b"four") + word(1, 4)
SOCKETS = {
    "data": (0, FOUR + tagged(0, OWN, TO + 4, b"more") + word(2, 4)),
    "two_writes": (0, tagged(0, OWN, TO, b"f") + tagged(0, OWN, TO + 1, b"our") + word(1, 4)),
    "weft": (2, tagged(0, OWN, TO, bytes(300)) + word(1, 300) + word(2, 0xE0000002)),
    "big_endian": (4, tagged(0, OWN, TO, b"four") + word(1, 4, ">") + word(2, 0xE0000000, ">")),
    "credit": (0, word(1, 0x80000190) + FOUR[:16]),
    "target": (0, tagged(0, LIST, LIST_TO + 16, struct.pack("<QII", 0x4000, 9, 65536)) + word(1, 0x80000190)),
    "target_wrong": (0, tagged(0, LIST, LIST_TO + 8, bytes(16))),
    "ready_write": (0, tagged(0, 1, 0) + FOUR),
    "ready_read": (0, untagged(1, 1, 1, struct.pack(">IQIIQ", 1, 0, 0, 1, 0)) + FOUR),
    "ready_send": (0, untagged(3, 0, 1) + tagged(0, OWN, TO, b"four") + word(2, 4)),
    "keepalive": (0, tagged(0, 0, 0) + word(1, 0xE0000001)),
    "shutdown": (0, FOUR + word(2, 0xE0000002) + tagged(0, OWN, TO + 4, b"more")),
    "count_wrong": (0, tagged(0, OWN, TO, b"four") + word(1, 5)),
    "offset_wrong": (0, tagged(0, OWN, TO + 1, b"four")),
    "terminate": (0, untagged(7, 2, 1, b"\x11\x02\0\0")),
}
DATA = bytes([1, 0, 1, 0x80]) + b"WF\1\0" + struct.pack(">QIIQII", 0x9000, 3, 2, 0x7000, 4, 65536)
ENHANCED = b"\x80\x01\xc0\x01"
STREAM_STARTS = {
    "request": b"\0" + REQUEST + b"\x10\x02\0\x2c" + ENHANCED + DATA,
    "request_1": b"\0" + REQUEST + b"\x40\x01\0\x28" + DATA,
    "request_markers": b"\0" + REQUEST + b"\x90\x02\0\x2c" + ENHANCED + DATA,
    "request_short": b"\0" + REQUEST + b"\x10\x02\0\x2b" + ENHANCED + DATA[:39],
    "reply": b"\1" + REPLY + b"\x10\x02\0\x2c\x80\x01\x80\x01" + DATA,
    "reply_rejected": b"\1" + REPLY + b"\x20\x01\0\0",
    "plain": b"\0GET / HTTP/1.1\r\n\r\n",
}


def question(about=1, client=4 * b"\x7f", server=4 * b"\x08", ports=(40000, 80), version=1, kind=1):
    ends = b"".join(bytes(10) + b"\xff\xff" + a + struct.pack(">H", p) for a, p in zip((client, server), ports))
    return b"Weft" + bytes([version, kind, about, 0]) + b"sixteen octets!!" + ends + bytes(68)


DISCOVERIES = {
    "question": b"\0" + question(),
    "question_datagrams": b"\0" + question(about=2),
    "question_long": b"\0" + question() + bytes(384),
    "question_longer": b"\0" + question() + bytes(385),
    "question_short": b"\0" + question()[:-1],
    "question_version": b"\0" + question(version=2),
    "question_port": b"\0" + question(ports=(0, 80)),
    "question_multicast": b"\0" + question(server=b"\xe0\0\0\1"),
    "yes": b"\1" + question(kind=2)[:24],
    "yes_long": b"\1" + question(kind=2)[:24] + bytes(40),
    "yes_other": b"\1" + question(kind=2)[:23] + b"?",
    "yes_datagrams": b"\3" + question(about=2, kind=2)[:24] + b"WF" + b"instance",
    "yes_datagrams_nowhere": b"\3" + question(about=2, kind=2)[:24] + bytes(10),
    "yes_datagrams_short": b"\3" + question(about=2, kind=2)[:24] + b"WF" + b"instanc",
}
PROMISE, TAKE, SETTLE, TIME = range(4)


def steps(*all_steps):
    return b"\7" + bytes(octet for step in all_steps for octet in step)


EXPECTATIONS = {
    "taken": steps((PROMISE, 1, 1), (TAKE, 1, 1), (TAKE, 1, 1)),
    "held": steps((PROMISE, 1, 1), (TIME, 9, 0), (SETTLE, 1, 1), (PROMISE, 1, 1)),
    "settled": steps((SETTLE, 1, 1), (PROMISE, 1, 1), (TIME, 17, 0), (PROMISE, 1, 1), (SETTLE, 1, 1)),
    "over": steps((PROMISE, 1, 1), (TIME, 20, 0), (TAKE, 1, 1)),
    "many": steps(*((PROMISE, 1, port) for port in range(256)), *((SETTLE, 2, port) for port in range(256))),
}


def put(target, name, octets):
    (HERE / "corpus" / target / name).write_bytes(octets)


def captured(path):
    """Payload of the first four connections' directions, which begin with a start-up frame."""
    for stream in range(2):
        follow = ["tshark", "-r", path, "-q", "-z", f"follow,tcp,raw,{stream}"]
        lines = subprocess.run(follow, capture_output=True, text=True, check=True).stdout.splitlines()
        lines = [line for line in lines if line.strip() and not line.startswith(("=", "F", "N"))]
        for back in (False, True):
            octets = b"".join(bytes.fromhex(l) for l in lines if l.startswith("\t") == back)
            if octets:
                yield stream, back, octets


def main():
    for target in ("mpa_startup", "fpdu_stream", "rules", "stream", "stream_start", "discovery", "discovery_expected"):
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
    for name, octets in STREAMS.items():
        put("fpdu_stream", name, b"\x0c\x05" + octets)
        put("fpdu_stream", f"{name}_crc", b"\x05\x05" + octets)
    put("fpdu_stream", "send_markers", b"\x03\x05" + marked(SEND))
    put("fpdu_stream", "write_markers", b"\x02\x05" + marked(STREAMS["write"]))
    for name, octets in RULES.items():
        put("rules", name, octets)
    for name, (flags, octets) in SOCKETS.items():
        put("stream", name, bytes([flags, 5]) + octets)
        put("stream", f"{name}_crc", bytes([flags | 1, 64]) + octets)
    for name, octets in STREAM_STARTS.items():
        put("stream_start", name, octets)
    for name, octets in DISCOVERIES.items():
        put("discovery", name, octets)
    for name, octets in EXPECTATIONS.items():
        put("discovery_expected", name, octets)
    for name, (flags, octets) in FRAMES.items():
        put("mpa_startup", name, bytes([flags, 0x42, 0x06, 0x04]) + octets)
    for path in sorted(CAPTURES.glob("*.pcap")):
        for stream, back, octets in captured(path):
            name = f"siw_{path.stem}_{stream}{'r' if back else 'i'}"
            frame = 20 + struct.unpack(">H", octets[18:20])[0]
            crc = octets[16] & 0x40
            if back:
                put("mpa_startup", name, bytes([0x13 if stream else 0x03, 0x88, 0x06, 0x03]) + octets[: frame + 4])
            else:
                put("mpa_startup", name, bytes([0x22, 0x88, 0x06, 0x03]) + octets[:frame])
            if len(octets) > frame:
                put("fpdu_stream", name, bytes([1 if crc else 8, 0x21]) + octets[frame:][:LONGEST])


if __name__ == "__main__":
    main()
