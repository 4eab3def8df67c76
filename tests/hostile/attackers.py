#!/usr/bin/env python3
"""Those who attack: strangers, peers that hold a connection, users of the same machine. By seed, for a time.

    attackers.py WHO JSON       WHO: `strangers`, `peers` or `local`; JSON: what is known of the server (run.py)

The last line is JSON: how often each kind of attack was made, and what came of it that should not.
"""

import collections
import json
import os
import random
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import wire
from wire import Ended, Peer, connect, cut

AT_ONCE = 4  # attacks of one process
BREATH = 0.02  # seconds between two of a thread: honest traffic shall share the cores with them, not starve


class Attacker:
    """One thread's attacks."""

    def __init__(self, known, seed, told):
        self.known = known
        self.random = random.Random(seed)
        self.to = (known["address"], known["port"])
        self.told = told

    def octets(self, least, most):
        return self.random.randbytes(self.random.randint(least, most))

    def source(self):
        return self.random.choice(self.known["sources"])

    def pause(self, most):
        time.sleep(min(self.random.uniform(0, most), max(0, self.known["until"] - time.monotonic())))

    def peer(self):
        return Peer(self.to, self.source())

    def run(self, kinds):
        while time.monotonic() < self.known["until"]:
            kind = self.random.choice(kinds)
            try:
                kind(self)
            except (Ended, OSError):
                self.told["ended"] += 1
            self.told[kind.__name__] += 1
            time.sleep(BREATH)

    def listen_for_secrets(self, heard):
        if self.known["secret"] in bytes(heard):
            self.told["leaks"] += 1

    def with_peer(self, act, listen=0.3):
        """Acts as a peer, hears the answer and ends, one way or the other."""
        peer = self.peer()
        try:
            act(peer)
            peer.drain(listen)
        finally:
            self.listen_for_secrets(peer.heard)
            self.random.choice([peer.close, peer.reset])()

    # --- strangers

    def silent(self):
        held = []
        for _ in range(self.random.randint(1, 40)):
            held.append(connect(self.to, self.source()))
        self.pause(2)
        for one in held:
            self.random.choice([cut, socket.socket.close])(one)

    def garbage(self):
        one = connect(self.to, self.source())
        one.sendall(self.octets(1, 3000))
        one.settimeout(0.3)
        self.listen_for_secrets(one.recv(65536))
        one.close()

    def slow_octets(self):
        one = connect(self.to, self.source())
        for octet in wire.request(self.octets(0, 64)):
            one.sendall(bytes([octet]))
            self.pause(0.05)
        one.close()

    def flood(self):
        for _ in range(self.random.randint(10, 100)):
            cut(connect(self.to, self.source()))

    def requests(self):
        held = []
        for _ in range(self.random.randint(1, 40)):
            one = connect(self.to, self.source())
            one.sendall(wire.request(self.octets(0, 100)))
            held.append(one)
        self.pause(1)
        for one in held:
            self.random.choice([cut, socket.socket.close])(one)

    def odd_requests(self):
        one = connect(self.to, self.source())
        frame = bytearray(wire.request(self.octets(0, 600), self.random.randrange(256), self.random.randrange(4)))
        for _ in range(self.random.randint(0, 3)):
            frame[self.random.randrange(len(frame))] = self.random.randrange(256)
        one.sendall(frame)
        one.settimeout(0.3)
        self.listen_for_secrets(one.recv(65536))
        one.close()

    def bring_up_scan(self):
        number = self.known["rc"]
        for _ in range(self.random.randint(1, 20)):
            guess = self.random.choice([number, number & ~0xFF | self.random.randrange(256)])
            said = guess, self.random.getrandbits(24), self.random.randrange(4), self.random.getrandbits(24)
            hello = b"WEFTQP\x00\x02" + struct.pack(">IIII", *said)
            one = connect((self.known["address"], number >> 8), self.source())
            one.sendall(wire.request(hello))
            one.settimeout(0.1)
            try:
                one.recv(65536)
            except TimeoutError:
                pass
            one.close()

    def datagrams(self):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind((self.source(), 0))
        one.settimeout(0.05)
        for _ in range(self.random.randint(1, 200)):
            octets = bytearray(self.octets(0, 1400))
            if len(octets) > 16 and self.random.random() < 0.5:
                octets[:8] = b"WUD\x01" + bytes([self.random.randrange(4), self.random.randrange(4), 0, 0])
                octets[8:12] = struct.pack(">I", self.known["ud"])
            one.sendto(octets, (self.known["address"], self.known["ud"] >> 8))
        try:
            self.listen_for_secrets(one.recv(65536))
        except TimeoutError:
            pass
        one.close()

    # --- peers that hold a connection

    def wrong_stags(self):
        stag = self.random.getrandbits(32)
        self.with_peer(lambda peer: peer.put(self.random.choice([
            wire.write(stag, peer.address, b"four"),
            wire.read_request(1, 64, stag, peer.address),
            wire.fetch_and_add(1, stag, peer.address, 1),
            wire.write(peer.stag ^ 1 << self.random.randrange(32), peer.address, b"four"),
        ])))

    def secrets(self):
        """Everything is known of this region; it was not given."""
        stag, address = self.known["key"], self.known["secret_address"]
        self.with_peer(lambda peer: peer.put(self.random.choice([
            wire.write(stag, address, b"four"),
            wire.read_request(1, 4096, stag, address),
            wire.fetch_and_add(1, stag, address, 1),
            wire.send_invalidate(1, stag),
            # From its own region's end, as far as it is.
            wire.read_request(1, 0xFFFFFFFF, peer.stag, address),
            wire.write(peer.stag, address, b"four"),
        ])))

    def bounds(self):
        def act(peer):
            end = peer.address + peer.length
            place = self.random.choice([end - 3, peer.address - 1, (1 << 64) - 2, 0, peer.address])
            size = self.random.choice([4, peer.length + 1, 0x7FFFFFFF, 0xFFFFFFFF])
            peer.put(self.random.choice([
                wire.write(peer.stag, place % (1 << 64), self.octets(4, 1400)),
                wire.read_request(1, size, peer.stag, place % (1 << 64)),
                wire.fetch_and_add(1, peer.stag, peer.address + 1, 1),
            ]))
        self.with_peer(act)

    def hostile_fpdus(self):
        def act(peer):
            good = [wire.write(peer.stag, peer.address, self.octets(1, 1000)), wire.send(1, self.octets(0, 500)),
                    wire.read_request(1, 100, peer.stag, peer.address), wire.read_response(7, 0, self.octets(1, 100)),
                    wire.untagged(7, 2, 1, 0, self.octets(4, 60)), self.octets(2, 1400)]
            octets = bytearray()
            for _ in range(self.random.randint(1, 5)):
                ulpdu = bytearray(self.random.choice(good))
                for _ in range(self.random.choice([0, 1, 1, 5])):
                    ulpdu[self.random.randrange(min(len(ulpdu), 30))] = self.random.randrange(256)
                lie = self.random.choice([None, None, self.random.randrange(65536)])
                octets += wire.fpdu(bytes(ulpdu), peer.crc, lie)
            if self.random.random() < 0.3:
                octets[self.random.randrange(len(octets))] ^= 1 << self.random.randrange(8)
            peer.put_octets(octets)
        self.with_peer(act)

    def empty_segments(self):
        def act(peer):
            empty = [wire.send(1, b"", 0, False)] * self.random.randint(1, 600)
            peer.put(*empty, wire.send(1, self.octets(0, 20)))
        self.with_peer(act)

    def many_sends(self):
        def act(peer):
            for msn in range(1, self.random.randint(2, 2000)):
                peer.put(wire.send(msn, self.octets(0, 100)))
        self.with_peer(act)

    def too_long_sends(self):
        def act(peer):
            mo = 0
            for _ in range(self.random.randint(1, 30)):
                payload = self.octets(100, 1400)
                peer.put(wire.send(1, payload, mo, False))
                mo += len(payload)
        self.with_peer(act)

    def reset_in_a_write(self):
        peer = self.peer()
        octets = wire.fpdu(wire.write(peer.stag, peer.address, self.octets(1, 60000)), peer.crc)
        peer.put_octets(octets[:self.random.randrange(len(octets))])
        peer.reset()

    def reset_in_a_read(self):
        peer = self.peer()
        reads = range(1, self.random.randint(2, 5))
        peer.put(*[wire.read_request(n, peer.length, peer.stag, peer.address) for n in reads])
        peer.drain(0.1, self.random.randint(1, 100_000))
        peer.reset()

    def reads_beyond_ird(self):
        self.with_peer(lambda peer: peer.put(*[wire.read_request(n, 4096, peer.stag, peer.address)
                                               for n in range(1, self.random.randint(5, 300))]))

    def reads_that_nobody_takes(self):
        peer = self.peer()
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.put(*[wire.read_request(n, peer.length, peer.stag, peer.address) for n in range(1, 4)])
        self.pause(2)
        self.random.choice([peer.close, peer.reset])()

    def invalidations(self):
        def act(peer):
            stag = self.random.choice([peer.stag, self.known["key"], self.random.getrandbits(32)])
            peer.put(wire.send_invalidate(1, stag, b"four"), wire.write(peer.stag, peer.address, b"four"))
        self.with_peer(act)

    def well_behaved(self):
        """What it was given it may use, as long as it likes."""
        peer = self.peer()
        payload = self.octets(1, 1400)
        back = wire.read_request(1, len(payload), peer.stag, peer.address)
        peer.put(wire.write(peer.stag, peer.address, payload), back)
        heard = peer.drain(0.5)
        if payload not in heard and len(heard) > len(payload) + 20:
            self.told["wrong_reads"] += 1
        self.listen_for_secrets(peer.heard)
        self.pause(2)
        peer.close()

    # --- users of the same machine

    def look_into_the_process(self):
        here = Path(f"/proc/{self.known['pid']}")
        paths = [here / "mem", here / "maps", here / "environ", here / "fd"]
        paths += [here / "fd" / str(number) for number in range(40)] + [here / "map_files"]
        for path in paths:
            try:
                if path.is_dir():
                    found = os.listdir(path)
                else:
                    with open(path, "rb") as file:
                        found = file.read(1)
            except OSError:
                continue
            if found:
                self.told["opened"] += 1
        for segment in Path("/dev/shm").glob("*weft*"):
            self.told["opened"] += os.access(segment, os.R_OK)

    def guess_stags_here(self):
        source = f"127.{self.random.randrange(256)}.{self.random.randrange(256)}.{self.random.randint(1, 254)}"
        peer = Peer((self.known["address"], self.known["port"]), None if self.random.random() < 0.5 else source)
        peer.put(wire.write(self.random.getrandbits(32), self.known["secret_address"], b"four"))
        self.listen_for_secrets(peer.drain(0.3))
        peer.close()


A = Attacker
KINDS = {
    "strangers": [A.silent, A.garbage, A.slow_octets, A.flood, A.requests, A.odd_requests, A.bring_up_scan,
                  A.datagrams],
    "peers": [A.wrong_stags, A.secrets, A.bounds, A.hostile_fpdus, A.empty_segments, A.many_sends, A.too_long_sends,
              A.reset_in_a_write, A.reset_in_a_read, A.reads_beyond_ird, A.reads_that_nobody_takes, A.invalidations,
              A.well_behaved],
    "local": [A.look_into_the_process, A.guess_stags_here, A.silent],
}


def main():
    who, known = sys.argv[1], json.loads(sys.argv[2])
    known["secret"] = bytes.fromhex(known["secret"])[::-1]
    known["until"] = time.monotonic() + known["seconds"]
    told = [collections.Counter() for _ in range(AT_ONCE)]
    attackers = [Attacker(known, f"{known['seed']} {who} {n}", told[n]) for n in range(AT_ONCE)]
    threads = [threading.Thread(target=one.run, args=(KINDS[who],), daemon=True) for one in attackers]
    for thread in threads:
        thread.start()
    for thread in threads:
        # A peer's patience ends after the time of the attacks.
        thread.join(known["seconds"] + 3 * wire.MOST)
    counts = collections.Counter({kind.__name__: 0 for kind in KINDS[who]})
    for one in told:
        counts.update(one)
    counts["stuck"] = sum(thread.is_alive() for thread in threads)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
