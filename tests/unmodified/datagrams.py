"""Programs of UDP: offloaded at both ends and at either alone."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

from bench import Skip, program, same


@program("iperf3 -u", core=True,
         what="its counts: order, and that most arrive")
def iperf3_udp(bench):
    bench.need("iperf3")
    port = bench.port()
    bench.start("iperf3", "-s", "-1", "-p", port)
    bench.bound(port, "tcp")
    said = bench.run("iperf3", "-c", "127.0.0.1", "-u", "-b", "300M", "-l", "1448", "-t", "2", "-p", port, "-J")
    total = json.loads(said)["end"]["sum"]
    # How many are lost depends on how busy the machine is; what arrives arrives in order.
    assert total["packets"] > 1000 and total["lost_packets"] < total["packets"], total
    assert json.loads(said)["end"]["streams"][0]["udp"]["out_of_order"] == 0, said


@program("iperf -u (2)",
         what="the server's report reaches the client")
def iperf2_udp(bench):
    bench.need("iperf")
    port = bench.port()
    bench.start("iperf", "-s", "-u", "-p", port)
    bench.bound(port, "udp")
    said = bench.run("iperf", "-c", "127.0.0.1", "-u", "-b", "300M", "-l", "1448", "-t", "2", "-p", port)
    assert "Server Report" in said and "WARNING" not in said, said


@program("nuttcp -u",
         what="the server's report")
def nuttcp(bench):
    bench.need("nuttcp")
    port = bench.port()
    bench.start("nuttcp", "-S", "--nofork", "-P", port)
    bench.bound(port)
    said = bench.run("nuttcp", "-u", "-R200m", "-l1448", "-T2", "-P", port, "127.0.0.1")
    assert "pkt" in said, said


@program("sockperf, ping-pong and throughput",
         what="none dropped, none out of order in ping-pong")
def sockperf(bench):
    bench.need("sockperf")
    port = bench.port()
    bench.start("sockperf", "server", "-i", "127.0.0.1", "-p", port)
    bench.bound(port, "udp")
    said = bench.run("sockperf", "ping-pong", "-i", "127.0.0.1", "-p", port, "-t", "2", "-m", "64")
    assert "dropped messages = 0" in said and "out-of-order messages = 0" in said, said
    bench.run("sockperf", "throughput", "-i", "127.0.0.1", "-p", port, "-t", "1", "-m", "1448")


@program("dnsmasq with dig", core=True,
         what="302 answers, over UDP and TCP")
def dns(bench):
    bench.need("dnsmasq", "dig")
    port = bench.port()
    bench.start("dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--conf-file=/dev/null",
                "--bind-interfaces", "--listen-address=127.0.0.1", f"--port={port}", "--address=/weft.test/192.0.2.7",
                "--txt-record=long.weft.test," + "x" * 200, "--pid-file=", "--user=root")
    bench.bound(port, "tcp")
    batch = bench.folder / "batch"
    batch.write_text("".join(f"n{i}.weft.test A\n" for i in range(300)))
    said = bench.run("dig", "@127.0.0.1", "-p", port, "+short", "-f", batch)
    assert said.split() == ["192.0.2.7"] * 300, said[:300] + bench.logs()
    said = bench.run("dig", "@127.0.0.1", "-p", port, "+short", "long.weft.test", "TXT")
    assert "x" * 200 in said, said
    said = bench.run("dig", "@127.0.0.1", "-p", port, "+tcp", "+short", "a.weft.test")
    assert said.strip() == "192.0.2.7", said


@program("unbound with dig", what="301 answers, over UDP and TCP")
def unbound(bench):
    bench.need("unbound", "dig")
    port = bench.port()
    conf = bench.folder / "unbound.conf"
    conf.write_text(f"""
server:
  interface: 127.0.0.1
  port: {port}
  do-daemonize: no
  use-syslog: no
  chroot: ""
  username: ""
  directory: "{bench.folder}"
  pidfile: ""
  num-threads: 2
  module-config: "iterator"
  local-zone: "weft.test." redirect
  local-data: "weft.test. A 192.0.2.7"
remote-control:
  control-enable: no
""")
    bench.start("unbound", "-d", "-c", conf)
    bench.bound(port)
    batch = bench.folder / "batch"
    batch.write_text("".join(f"n{i}.weft.test A\n" for i in range(300)))
    said = bench.run("dig", "@127.0.0.1", "-p", port, "+short", "-f", batch)
    assert said.split() == ["192.0.2.7"] * 300, said[:300] + bench.logs()
    said = bench.run("dig", "@127.0.0.1", "-p", port, "+tcp", "+short", "a.weft.test")
    assert said.strip() == "192.0.2.7", said


@program("UFTP", what="SHA-256 of 8 MB at 400 Mb/s")
def uftp(bench):
    bench.need("uftp", "uftpd")
    port = bench.port()
    source = bench.data("source", 8 << 20)
    (bench.folder / "arrived").mkdir()
    bench.start("uftpd", "-d", "-D", bench.folder / "arrived", "-T", bench.folder, "-p", port, "-I", "lo")
    bench.bound(port, "udp")
    bench.run("uftp", "-M", "127.0.0.1", "-p", port, "-R", "400000", "-I", "lo", source)
    same(source, bench.folder / "arrived" / "source")


@program("SRT, srt-live-transmit", what="every octet of a stream of 1316-octet datagrams, 10 Mb/s")
def srt_live(bench):
    bench.need("srt-live-transmit")
    port = bench.port()
    source = bench.data("source", 1316 * 800)
    listener = bench.start("srt-live-transmit", "-q", f"srt://:{port}?latency=1000", "file://con")
    bench.bound(port, "udp")
    caller = bench.start("srt-live-transmit", "-q", "-chunk:1316", "file://con", f"srt://127.0.0.1:{port}?latency=1000",
                         environment=bench.client, stdin=subprocess.PIPE)
    time.sleep(0.5)
    octets = source.read_bytes()
    with caller.child.stdin as stdin:
        for at in range(0, len(octets), 13160):
            stdin.write(octets[at:at + 13160])
            stdin.flush()
            time.sleep(0.01)
        # The latency passes before the last of it comes out, and ends flush what the programs hold. In small sleeps: a
        # machine that stands still meanwhile gives them no time.
        for _ in range(150):
            time.sleep(0.01)
        for process in (caller, listener):
            process.end(20)
    same(source, f"{listener.log}.out")


@program("SRT, srt-file-transmit", what="SHA-256 of 8 MB")
def srt_file(bench):
    bench.need("srt-file-transmit")
    port = bench.port()
    source = bench.data("source", 8 << 20)
    (bench.folder / "arrived").mkdir()
    # The program sets the stream's name after it has begun to connect, and now and then, without anything before it,
    # too late: the listener says "id []", and has no name for the file.
    for _ in range(8):
        sink = bench.start("srt-file-transmit", f"srt://127.0.0.1:{port}?mode=listener",
                           f"file://{bench.folder}/arrived/")
        bench.bound(port, "udp")
        bench.run("srt-file-transmit", f"file://{source}", f"srt://127.0.0.1:{port}")
        assert sink.wait(30), bench.logs()
        ended = sink.result()
        if "id []" not in ended.output + ended.errors:
            break
    assert ended.status == 0, f"{ended.how()}: {bench.logs()}"
    same(source, bench.folder / "arrived" / "source")


@program("UDT, a program on Debian's libudt", what="SHA-256 of 16 MB")
def udt(bench):
    bench.need("g++")
    if not Path("/usr/include/udt/udt.h").exists():
        raise Skip("libudt-dev is not installed")
    code = Path(__file__).parent / "udt.cpp"
    built = subprocess.run(["g++", "-O2", "-Wall", "-Wextra", "-o", bench.folder / "udt", code, "-ludt", "-lpthread"],
                           capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    port = bench.port()
    source = bench.data("source", 16 << 20)
    sink = bench.start(bench.folder / "udt", "receive", port, "arrived")
    bench.bound(port, "udp")
    bench.run(bench.folder / "udt", "send", "127.0.0.1", port, source)
    bench.well(sink)
    same(source, bench.folder / "arrived")


@program("the datagram checker",
         what="number, size, hash and order of every datagram, random sizes to 64 KB by every call there is")
def checker(bench):
    bench.need("cc")
    code = Path(__file__).parents[1] / "datagrams" / "checker.c"
    built = subprocess.run(["cc", "-std=gnu11", "-O2", "-pthread", "-o", bench.folder / "checker", code],
                           capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    seconds = os.environ.get("CHECKER_SECONDS", "2")
    sink = bench.start(bench.folder / "checker", "receive", 0)
    end = time.monotonic() + 30
    while not (port := re.search(r"^port (\d+)$", bench.logs(), re.MULTILINE)):
        assert time.monotonic() < end and not sink.ended(), bench.logs()
        time.sleep(0.05)
    port = port[1]
    bench.run(bench.folder / "checker", "send", "127.0.0.1", port, int(time.time()), seconds,
              timeout=60 + float(seconds))
    bench.well(sink)
