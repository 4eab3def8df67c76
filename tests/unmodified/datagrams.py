"""Programs of UDP: offloaded at both ends and at either alone."""

import json
import os
import re
import signal
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


def start_unbound(bench):
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
    return port


@program("unbound with dig", what="301 answers, over UDP and TCP")
def unbound(bench):
    bench.need("unbound", "dig")
    port = start_unbound(bench)
    batch = bench.folder / "batch"
    batch.write_text("".join(f"n{i}.weft.test A\n" for i in range(300)))
    said = bench.run("dig", "@127.0.0.1", "-p", port, "+short", "-f", batch)
    assert said.split() == ["192.0.2.7"] * 300, said[:300] + bench.logs()
    said = bench.run("dig", "@127.0.0.1", "-p", port, "+tcp", "+short", "a.weft.test")
    assert said.strip() == "192.0.2.7", said


def dnsperf(bench, port):
    """Asks a server for a second, many questions at a time; every one is answered."""
    batch = bench.folder / "questions"
    batch.write_text("".join(f"n{i}.weft.test A\n" for i in range(300)))
    said = bench.run("dnsperf", "-s", "127.0.0.1", "-p", port, "-d", batch, "-l", "1", "-q", "50")
    sent, answered = (int(re.search(rf"Queries {what}: +(\d+)", said)[1]) for what in ("sent", "completed"))
    good = int(re.search(r"NOERROR (\d+)", said)[1])
    assert sent == answered == good > 1000, said


@program("unbound with dnsperf", what="every question is answered, and well")
def unbound_dnsperf(bench):
    bench.need("unbound", "dnsperf")
    dnsperf(bench, start_unbound(bench))


@program("nsd with dnsperf", what="every question is answered, and well")
def nsd(bench):
    bench.need("nsd", "dnsperf")
    port = bench.port()
    (bench.folder / "zone").write_text("@ 60 IN SOA a. b. 1 60 60 60 60\n@ 60 IN NS a.\n* 60 IN A 192.0.2.7\n")
    conf = bench.folder / "nsd.conf"
    conf.write_text(f"""
server:
  ip-address: 127.0.0.1
  port: {port}
  username: ""
  chroot: ""
  zonesdir: "{bench.folder}"
  pidfile: ""
  xfrdfile: ""
  database: ""
  zonelistfile: "{bench.folder}/zone.list"
  rrl-ratelimit: 0
remote-control:
  control-enable: no
zone:
  name: "weft.test"
  zonefile: "zone"
""")
    bench.start("nsd", "-d", "-c", conf)
    bench.bound(port)
    dnsperf(bench, port)


@program("coturn: turnserver, its client and its peer", what="every message comes back through the relay")
def coturn(bench):
    bench.need("turnserver", "turnutils_uclient", "turnutils_peer")
    port, peer = bench.port(), bench.port()
    bench.start("turnserver", "-n", "-p", port, "-L", "127.0.0.1", "-E", "127.0.0.1", "--allow-loopback-peers",
                "--no-tls", "--no-dtls", "--no-cli", "-a", "-u", "weft:word", "-r", "weft.test", "-l", "stdout",
                "--userdb", bench.folder / "users", "--pidfile", bench.folder / "pid")
    bench.start("turnutils_peer", "-p", peer, "-L", "127.0.0.1")
    bench.bound(port, "udp")
    bench.bound(peer, "udp")
    said = bench.run("turnutils_uclient", "-n", "200", "-m", "2", "-l", "1000", "-z", "2", "-u", "weft", "-w", "word",
                     "-e", "127.0.0.1", "-r", peer, "-p", port, "127.0.0.1")
    total = re.findall(r"tot_send_msgs=(\d+), tot_recv_msgs=(\d+)", said)[-1]
    assert total[0] == total[1] and int(total[0]) >= 400, said[-2000:]


@program("GStreamer, RTP of raw video", what="each of 50 pictures")
def gstreamer(bench):
    bench.need("gst-launch-1.0")
    if subprocess.run(["gst-inspect-1.0", "rtpvrawpay"], capture_output=True, check=False).returncode:
        raise Skip("gstreamer1.0-plugins-good is not installed")
    port = bench.port()
    size = "width={0}160,height={0}120"
    source = ["videotestsrc", "num-buffers=50", "pattern=ball", "!",
              f"video/x-raw,format=I420,framerate=25/1,{size.format('')}", "!"]
    subprocess.run(["gst-launch-1.0", "-q", *source, "filesink", "location=source"], cwd=bench.folder, env=bench.plain,
                   check=True)
    caps = ("application/x-rtp,media=video,clock-rate=90000,encoding-name=RAW,sampling=YCbCr-4:2:0,depth=(string)8,"
            + size.format("(string)"))
    sink = bench.start("gst-launch-1.0", "-q", "udpsrc", f"port={port}", "address=127.0.0.1", f"caps={caps}", "!",
                       "rtpvrawdepay", "!", "filesink", "location=arrived")
    bench.bound(port, "udp")
    bench.run("gst-launch-1.0", "-q", *source, "rtpvrawpay", "mtu=1400", "!", "udpsink", "host=127.0.0.1",
              f"port={port}")
    time.sleep(0.5)
    sink.signal(signal.SIGINT)
    bench.well(sink)
    same(bench.folder / "source", bench.folder / "arrived")


@program("FFmpeg, RTP of MPEG", what="the pictures that come are those that were sent, in order")
def ffmpeg(bench):
    bench.need("ffmpeg")
    port = bench.port()
    quiet = ["ffmpeg", "-loglevel", "error", "-nostdin"]

    def pictures(path):
        """A hash of each picture."""
        said = subprocess.run([*quiet, "-i", path, "-f", "framemd5", "-"], cwd=bench.folder, env=bench.plain,
                              check=True, capture_output=True, text=True).stdout
        return [line.split()[-1] for line in said.splitlines() if not line.startswith("#")]

    subprocess.run([*quiet, "-f", "lavfi", "-i", "testsrc=size=320x240:rate=25", "-t", "3", "-c:v", "mpeg2video", "-g",
                    "5", "source.ts"], cwd=bench.folder, env=bench.plain, check=True)
    sink = bench.start(*quiet, "-i", f"rtp://127.0.0.1:{port}", "-c", "copy", "arrived.ts")
    bench.bound(port, "udp")
    bench.run(*quiet, "-re", "-i", "source.ts", "-c", "copy", "-f", "rtp_mpegts", f"rtp://127.0.0.1:{port}")
    time.sleep(0.5)
    sink.signal(signal.SIGINT)
    assert sink.wait(30), bench.logs()
    sent, came = pictures("source.ts"), pictures("arrived.ts")
    # What comes before it knows the stream is not kept.
    first = sent.index(came[0]) if came and came[0] in sent else -1
    assert first >= 0 and len(came) >= 40 and came == sent[first:first + len(came)], (len(came), first, bench.logs())


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
