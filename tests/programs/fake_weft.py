#!/usr/bin/env python3
"""A stand-in for weft in the driver's own tests: plays the programs of the table over plain TCP.

`FAKE_WEFT` says how: `well`, or one of the ways to go wrong that the driver has to see.
"""

import os
import shutil
import socket
import sys
import time

MODE = os.environ.get("FAKE_WEFT", "well")
# Their servers do not end by themselves.
SERVICES = ("cmtime", "qperf", "dapltest", "rcopy")
# Built into the programs; dapltest's goes by its provider.
PORTS = {"udaddy": 7174, "dtest": 15828, "cma": 62000, "scm": 63000}
BW_HEADER = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]"
LAT_HEADER = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"


def perftest_output(program, words):
    sizes = [2 << power for power in range(23)] if "-a" in words else [65536]
    if MODE == "few-rows":
        sizes = sizes[1:]
    figures = "3000.00 2900.00 0.04" if program.endswith("bw") else "1.20 9.00 1.30 1.40"
    if MODE == "zero":
        figures = "0.00 0.00 0.00 0.00"
    header = BW_HEADER if program.endswith("bw") else LAT_HEADER
    return "\n".join([header, *[f" {size:<10} 1000   {figures}" for size in sizes]])


def output(program, words, is_server):
    if program == "rping":
        count = 99 if MODE == "few-rows" else 100
        prefix = "server ping data" if is_server else "ping data"
        return "\n".join(f"{prefix}: rdma-ping-{number}: ABC" for number in range(count))
    if program in ("ucmatose", "udaddy"):
        return "test complete\nreturn status 0"
    if program == "workers":
        return "last batches: sum 10"
    if program == "churn":
        return "churn: 10000 connections, no growth"
    if program == "fi_pingpong":
        rows = (4 if "dgram" in words else 6) - (MODE == "few-rows")
        return "bytes   #sent   #ack     total       time\n" + "64      10      =10      1.2k        0.24s\n" * rows
    if program.endswith("pingpong"):
        count = words[words.index("-n") + 1] if "-n" in words else "1000"
        return f"{count} iters in 0.02 seconds = 20.00 usec/iter"
    if program == "meet":
        return "200 met, 1.0 s"
    if program.startswith("rdma_"):
        return f"{program}: end 0"
    if program == "cmtime":
        return "connect      :       29.93      13.05    3031.00     299.28\ndisconnect   :       15.43       12.14    1.0   1.5"
    if program == "dtest":
        return "DAPL Test Complete. PASSED"
    if program == "dapltest":
        ways = ("Send", "Recv", "RDMA Read", "RDMA Write")[MODE == "few-rows":]
        return "\n".join([*[f"Total {way:12} :      0.10 MB" for way in ways], "End of Work"])
    if program == "fio":
        count = int(words[words.index("--size") + 1]) // int(words[words.index("--bs") + 1]) - (MODE == "few-rows")
        return f"     issued rwts: total={f'{count},0' if is_server else f'0,{count}'},0,0 short=0,0,0,0"
    if program in ("rstream", "riostream"):
        rows = 8 if "-S" not in words else 1
        return "64_lat    64      1       100k    12m        3.77s      0.03      18.84\n" * (rows - (MODE == "few-rows"))
    if program == "qperf":
        tests = words[words.index("-t") + 2:][MODE == "few-rows":] if not is_server else []
        return "\n".join(f"{test}:\n    bw  =  100 MB/sec" for test in tests)
    if program == "ucx_perftest":
        return "" if is_server else "Final:   1000   7.683   8.020   8.020   0.95   0.95   124688   124688"
    return "" if is_server else perftest_output(program, words)


def single(program):
    device = "mlx5_0" if MODE == "other-device" else "weft0"
    if program == "ucx_info":
        print("".join(f"#      Transport: {name}\n#         Device: weft0:1\n" for name in ("rc_verbs", "ud_verbs")))
    elif program == "ibv_devices":
        print(f"    device          \t   node GUID\n    ------          \t------------\n    {device}   \t0002")
    else:
        print(f"hca_id: {device}\n\ttransport:\t\tInfiniBand (0)\n\t\tport: 1\n\t\tstate:\t\tPORT_ACTIVE (4)")
        if MODE == "stderr":
            print("a remark", file=sys.stderr)


def serve(port):
    """Accepts one connection and returns when the other end has gone."""
    if MODE == "dies":
        sys.exit("cannot bind")
    if MODE == "never-listens":
        time.sleep(600)
    both = socket.has_dualstack_ipv6()
    family, everywhere = (socket.AF_INET6, "::") if both else (socket.AF_INET, "")
    with socket.create_server((everywhere, port), family=family, dualstack_ipv6=both) as listener:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1)
    if MODE == "server-hangs":
        time.sleep(600)


def serve_datagram(port):
    """Waits for one datagram."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as ear:
        ear.bind(("::", port))
        ear.recv(1)


def send_datagram(address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as mouth:
        mouth.sendto(b"x", (address, port))


def connect(address, port, endless, patient):
    """Connects and leaves; an endless client stays until the other end goes, a patient one waits for it to come."""
    while patient:
        try:
            socket.create_connection((address, port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.02)
    with socket.create_connection((address, port)) as connection:
        if endless:
            # As perftest, which tells the other end the numbers of one connection over another.
            with socket.create_connection((address, port)):
                connection.recv(1)
        if MODE == "client-hangs":
            time.sleep(600)


def main():
    _, run, dashes, *words = sys.argv
    while words[0] == "env" or "=" in words[0]:
        words.pop(0)
    path, *words = words
    program = os.path.basename(path)
    assert (run, dashes) == ("run", "--"), sys.argv
    if program in ("mpirun.openmpi", "mpiexec.hydra"):
        print("mpi_check: 20054 answers right")
        return
    if program == "forkpool.py":
        print("forkpool: 600 answers right")
        return
    if program in ("ibv_devices", "ibv_devinfo", "ucx_info"):
        single(program)
        return
    if program == "fio":
        words = [part for word in words for part in word.split("=", 1)]
    if program == "mckey":
        sys.exit("weft: warn: rdma_join_multicast: multicast is not served")
    if program == "udpong":
        sys.exit("weft: warn: rsocket: rsockets are served as streams over IPv4 and IPv6 only")
    if program in PORTS or program == "dapltest":
        built_in = PORTS.get(program) or next(PORTS[word] for word in words if word in PORTS)
        words += ["-p", str(built_in)]
    options = {"qperf": ("-lp",), "fio": ("--port",), "fi_pingpong": ("-B", "-P")}.get(program, ("-p",))
    at = next(words.index(option) for option in options if option in words)
    port = int(words[at + 1])
    # It may look like a number of another kind.
    del words[at:at + 2]
    addresses = [word for word in words if "." in word or ":" in word]
    if program == "rcopy" and words:
        source, target = words
        address, copy = target.split(":")
        shutil.copy("/bin/true" if MODE == "few-rows" else source, copy)
        addresses = [address]
    # udaddy's server may bind every address.
    binds = program in ("rstream", "riostream") and "-b" in words or program == "rping" and "-s" in words
    is_server = program == "rdma_server" or binds or addresses in ([], ["::"])
    if program == "udaddy":
        serve_datagram(port) if is_server else send_datagram(addresses[-1], port)
    elif is_server:
        serve(port)
    else:
        endless = "20000" in words or "100000000" in words
        connect(addresses[0], port, endless, patient=program == "meet")
    if program in SERVICES and is_server != (MODE in ("status", "crash")):
        # The server waits for the next client; where it goes wrong, the client waits for the server.
        time.sleep(600)
    print(output(program, words, is_server))
    if MODE == "error-line" and not is_server:
        print("Completion with error at client")
    if MODE == "crash" and is_server:
        os.abort()
    sys.exit(1 if MODE == "status" and is_server else 0)


main()
