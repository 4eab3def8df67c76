#!/usr/bin/python3
"""A pool of forked workers, each with the device opened for itself, as programs that use multiprocessing have it.

    forkpool.py [-w WORKERS] [-n JOBS] [-r ROUNDS]

The parent opens the device first and has a queue pair for each worker. A worker opens the device in its own process,
brings a queue pair up with the parent's by GID and number, and works jobs off: it reads a piece of the parent's table (RDMA
Read), writes it back turned round (RDMA Write) and tells so (Send); the parent compares. Every worker dies between two
rounds, and the next round's are forked beside what is left. Needs pyverbs (Debian: python3-pyverbs).
"""
import argparse
import multiprocessing
import os
import random
import sys
import time

try:
    from pyverbs import enums
    from pyverbs.addr import GID, AHAttr, GlobalRoute
    from pyverbs.cq import CQ
    from pyverbs.device import Context
    from pyverbs.mr import MR
    from pyverbs.pd import PD
    from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
    from pyverbs.wr import SGE, RecvWR, SendWR
except ImportError as error:
    sys.exit(f"forkpool: needs pyverbs (Debian: python3-pyverbs): {error}")

PORT = 1
PIECE = 4096
PIECES = 64
PATIENCE = 30  # seconds for what has to come
RIGHTS = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_READ | enums.IBV_ACCESS_REMOTE_WRITE


class End:
    """A queue pair with memory, on a device that this process has opened."""

    def __init__(self, context, octets):
        self.context = context
        self.gid_index = first_gid(context)
        self.gid = context.query_gid(PORT, self.gid_index)
        self.domain = PD(context)
        self.queue = CQ(context, 64)
        self.memory = MR(self.domain, octets, RIGHTS)
        init = QPInitAttr(qp_type=enums.IBV_QPT_RC, scq=self.queue, rcq=self.queue, cap=QPCap(16, 16, 1, 1, 0))
        self.pair = QP(self.domain, init)

    def name(self):
        """What the other end has to know."""
        return self.pair.qp_num, str(self.gid), self.memory.buf, self.memory.rkey

    def connect(self, number, gid):
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = RIGHTS
        self.pair.to_init(attr)
        route = GlobalRoute(dgid=GID(gid), sgid_index=self.gid_index, hop_limit=64)
        attr = QPAttr(port_num=PORT)
        attr.path_mtu = enums.IBV_MTU_1024
        attr.dest_qp_num = number
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 4
        attr.min_rnr_timer = 12
        attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
        attr.ah_attr = AHAttr(port_num=PORT, is_global=1, gr=route)
        self.pair.to_rtr(attr)
        self.pair.to_rts(attr)

    def element(self, at, length):
        return SGE(self.memory.buf + at, length, self.memory.lkey)

    def receive(self, tag):
        self.pair.post_recv(RecvWR(wr_id=tag, sg=[self.element(0, 8)], num_sge=1))

    def act(self, opcode, at, length, peer=None):
        """Posts one request and waits for its end."""
        request = SendWR(wr_id=1, opcode=opcode, sg=[self.element(at, length)], num_sge=1,
                         send_flags=enums.IBV_SEND_SIGNALED)
        if peer:
            request.set_wr_rdma(*peer)
        self.pair.post_send(request)
        self.completed()

    def completed(self):
        """The next completion."""
        end = time.monotonic() + PATIENCE
        while True:
            count, entries = self.queue.poll(1)
            if count:
                break
            if time.monotonic() > end:
                raise TimeoutError("no completion came")
        if entries[0].status != enums.IBV_WC_SUCCESS:
            raise RuntimeError(f"a completion has status {entries[0].status}")
        return entries[0].wr_id


def first_gid(context):
    """The first one that a program would choose: neither empty nor of a link."""
    for index in range(context.query_port(PORT).gid_tbl_len):
        gid = str(context.query_gid(PORT, index))
        if gid.strip("0:") and not gid.startswith("fe80"):
            return index
    raise RuntimeError("no GID")


def open_device():
    return Context(name="weft0" if "weft0" in names() else names()[0])


def names():
    from pyverbs.device import get_device_list
    return [device.name.decode() for device in get_device_list()]


def work(task):
    """In a worker: jobs on a connection of its own to the parent's queue pair."""
    peer, jobs, pipe = task
    number, gid, address, key = peer
    end = End(open_device(), 2 * PIECE)
    pipe.send(end.name())
    end.connect(number, gid)
    pipe.recv()  # the parent's end is up
    for job in jobs:
        place = address + job * PIECE
        end.act(enums.IBV_WR_RDMA_READ, 0, PIECE, (key, place))
        turned = end.memory.read(PIECE, 0)[::-1]
        end.memory.write(turned, PIECE, 0)
        end.act(enums.IBV_WR_RDMA_WRITE, 0, PIECE, (key, place))
        end.act(enums.IBV_WR_SEND, 0, 8)
    pipe.send(os.getpid())
    return len(jobs)


def play_round(context, workers, jobs, seed):
    """One round: its workers are forked while the parent's device is open, and gone at the end."""
    chance = random.Random(seed)
    ends, tables, pipes, tasks = [], [], [], []
    for _ in range(workers):
        end = End(context, PIECES * PIECE + PIECE)
        table = chance.randbytes(PIECES * PIECE)
        end.memory.write(table, len(table), 0)
        number, gid, address, key = end.name()
        ours, theirs = multiprocessing.Pipe()
        ends.append(end)
        tables.append(table)
        pipes.append(ours)
        pieces = [chance.randrange(PIECES) for _ in range(jobs)]
        tasks.append(((number, gid, address, key), pieces, theirs))
    right = 0
    # One task for each worker: a worker that came to two would leave another without any, and nobody would wait for it.
    with multiprocessing.get_context("fork").Pool(workers, maxtasksperchild=1) as pool:
        done = [pool.apply_async(work, (task,)) for task in tasks]
        for end, pipe in zip(ends, pipes):
            if not pipe.poll(PATIENCE):
                raise TimeoutError("a worker did not come")
            number, gid, _, _ = pipe.recv()
            end.connect(number, gid)
            for tag in range(min(16, jobs)):
                end.pair.post_recv(RecvWR(wr_id=tag, sg=[end.element(PIECES * PIECE, 8)], num_sge=1))
            pipe.send("up")
        for end, table, task in zip(ends, tables, tasks):
            expected = bytearray(table)
            for count, job in enumerate(task[1], 1):
                end.completed()
                if count + 16 <= jobs:
                    end.pair.post_recv(RecvWR(wr_id=count, sg=[end.element(PIECES * PIECE, 8)], num_sge=1))
                at = slice(job * PIECE, (job + 1) * PIECE)
                expected[at] = expected[at][::-1]
            if end.memory.read(PIECES * PIECE, 0) != bytes(expected):
                raise RuntimeError("a table is not what its worker should have made of it")
            right += jobs
        if [result.get(PATIENCE) for result in done] != [jobs] * workers:
            raise RuntimeError("a worker did not do its jobs")
    return right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-w", type=int, default=4, dest="workers")
    parser.add_argument("-n", type=int, default=50, dest="jobs")
    parser.add_argument("-r", type=int, default=3, dest="rounds")
    options = parser.parse_args()
    context = open_device()
    right = sum(play_round(context, options.workers, options.jobs, seed) for seed in range(options.rounds))
    print(f"forkpool: {right} answers right")


if __name__ == "__main__":
    main()
