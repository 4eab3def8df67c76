#!/usr/bin/env python3
"""Real socket programs, unmodified, under the hooks.

    tests/unmodified/run.py LIBRARY [--only REGEX] [--full] [--docs FILE]

Each program runs under hooks without a rule (off) and with every UDP socket offloaded (gso), both ends, and has to do
what it does without: contents are compared. A program that is not installed is skipped. Closes with
`N passed, N failed, N skipped`; --docs writes a table with a line for each program.
"""

import argparse
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODES = {"off": {}, "gso": {"WEFT_UDP": "gso"}}
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin:/usr/local/sbin:/usr/local/go/bin"


class Skip(Exception):
    pass


class Bench:
    """Starts programs under the hooks, in a folder of their own, and ends what it started."""

    def __init__(self, library, mode, folder):
        self.folder = Path(folder)
        self.mode = mode
        self.plain = {**{k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}, "PATH": PATH}
        self.hooked = {**self.plain, **MODES[mode], "LD_PRELOAD": library}
        self.started = []

    @staticmethod
    def need(*names):
        for name in names:
            if not shutil.which(name, path=PATH):
                raise Skip(f"{name} is not installed")

    @staticmethod
    def port(kind=socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    def start(self, *command, hooked=True, user=None, **options):
        command = [str(word) for word in command]
        if user and os.geteuid() == 0:
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command]
        log = open(self.folder / f"log{len(self.started)}", "w+b")
        child = subprocess.Popen(
            command, env=self.hooked if hooked else self.plain, cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=options.pop("stdout", log), stderr=subprocess.STDOUT, start_new_session=True, **options)
        self.started.append((child, command))
        return child

    def run(self, *command, hooked=True, timeout=60, check=True, text=None):
        command = [str(word) for word in command]
        done = subprocess.run(
            command, env=self.hooked if hooked else self.plain, cwd=self.folder, input=text, timeout=timeout,
            capture_output=True, text=True)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def listening(self, port, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            for child, command in self.started:
                if child.poll() not in (None, 0):
                    raise AssertionError(f"{command[0]} ended with status {child.returncode}: {self.logs()}")
            time.sleep(0.05)
        raise AssertionError(f"nothing listens on {port}: {self.logs()}")

    def logs(self):
        return "\n".join(p.read_text(errors="replace")[-1500:] for p in sorted(self.folder.glob("log*")))

    def data(self, name, octets):
        path = self.folder / name
        path.write_bytes(os.urandom(octets))
        return path

    def end(self):
        for child, _ in self.started:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGTERM)
        for child, _ in self.started:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def same(a, b):
    assert digest(a) == digest(b), f"{a} and {b} differ"


PROGRAMS = {}


def program(title, core=False):
    def add(function):
        PROGRAMS[title] = (function, core)
        return function
    return add


@program("iperf3, TCP", core=True)
def iperf3_tcp(bench):
    bench.need("iperf3")
    port = bench.port()
    bench.start("iperf3", "-s", "-1", "-p", port)
    time.sleep(0.5)
    source = bench.data("source", 8 << 20)
    bench.run("iperf3", "-c", "127.0.0.1", "-p", port, "-F", source, "-t", "1", "-P", "2")


@program("iperf3 -u", core=True)
def iperf3_udp(bench):
    bench.need("iperf3")
    port = bench.port()
    bench.start("iperf3", "-s", "-1", "-p", port)
    time.sleep(0.5)
    said = bench.run("iperf3", "-c", "127.0.0.1", "-u", "-b", "300M", "-l", "1448", "-t", "2", "-p", port, "-J")
    import json
    total = json.loads(said)["end"]["sum"]
    # How many are lost depends on how busy the machine is; what arrives arrives in order.
    assert total["packets"] > 1000 and total["lost_packets"] < total["packets"], total
    assert json.loads(said)["end"]["streams"][0]["udp"]["out_of_order"] == 0, said


@program("iperf -u (2)")
def iperf2_udp(bench):
    bench.need("iperf")
    port = bench.port(socket.SOCK_DGRAM)
    bench.start("iperf", "-s", "-u", "-p", port)
    time.sleep(0.5)
    said = bench.run("iperf", "-c", "127.0.0.1", "-u", "-b", "300M", "-l", "1448", "-t", "2", "-p", port)
    assert "Server Report" in said and "WARNING" not in said, said


@program("nuttcp -u")
def nuttcp(bench):
    bench.need("nuttcp")
    port = bench.port()
    bench.start("nuttcp", "-S", "--nofork", "-P", port)
    bench.listening(port)
    said = bench.run("nuttcp", "-u", "-R200m", "-l1448", "-T2", "-P", port, "127.0.0.1")
    assert "pkt" in said, said


@program("sockperf, ping-pong and throughput")
def sockperf(bench):
    bench.need("sockperf")
    port = bench.port(socket.SOCK_DGRAM)
    bench.start("sockperf", "server", "-i", "127.0.0.1", "-p", port)
    time.sleep(0.7)
    said = bench.run("sockperf", "ping-pong", "-i", "127.0.0.1", "-p", port, "-t", "2", "-m", "64")
    assert "dropped messages = 0" in said and "out-of-order messages = 0" in said, said
    bench.run("sockperf", "throughput", "-i", "127.0.0.1", "-p", port, "-t", "1", "-m", "1448")


@program("dnsmasq with dig", core=True)
def dns(bench):
    bench.need("dnsmasq", "dig")
    port = bench.port(socket.SOCK_DGRAM)
    bench.start("dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--conf-file=/dev/null",
                "--bind-interfaces", "--listen-address=127.0.0.1", f"--port={port}", "--address=/weft.test/192.0.2.7",
                "--txt-record=long.weft.test," + "x" * 200, "--pid-file=", "--user=root")
    time.sleep(0.5)
    batch = bench.folder / "batch"
    batch.write_text("".join(f"n{i}.weft.test A\n" for i in range(300)))
    said = bench.run("dig", "@127.0.0.1", "-p", port, "+short", "-f", batch)
    assert said.split() == ["192.0.2.7"] * 300, said[:300] + bench.logs()
    said = bench.run("dig", "@127.0.0.1", "-p", port, "+short", "long.weft.test", "TXT")
    assert "x" * 200 in said, said
    said = bench.run("dig", "@127.0.0.1", "-p", port, "+tcp", "+short", "a.weft.test")
    assert said.strip() == "192.0.2.7", said


@program("socat, TCP and UDP", core=True)
def socat(bench):
    bench.need("socat")
    source = bench.data("source", 4 << 20)
    port = bench.port()
    sink = bench.start("socat", "-u", f"TCP-LISTEN:{port},reuseaddr", "CREATE:arrived")
    time.sleep(0.5)
    bench.run("socat", "-u", f"OPEN:{source}", f"TCP:127.0.0.1:{port},retry=20,interval=0.1")
    sink.wait(30)
    same(source, bench.folder / "arrived")
    port = bench.port(socket.SOCK_DGRAM)
    small = bench.data("small", 100 * 1024)
    sink = bench.start("socat", "-u", "-T1", "-b", "1024", f"UDP-RECV:{port},rcvbuf=4000000", "CREATE:datagrams")
    time.sleep(0.5)
    bench.run("socat", "-u", "-b", "1024", f"OPEN:{small}", f"UDP-SENDTO:127.0.0.1:{port}")
    sink.wait(30)
    same(small, bench.folder / "datagrams")


@program("redis, with BGSAVE under load", core=True)
def redis(bench):
    bench.need("redis-server", "redis-cli", "redis-benchmark")
    port = bench.port()
    bench.start("redis-server", "--port", port, "--dir", bench.folder, "--save", "", "--appendonly", "no")
    bench.listening(port)
    cli = ("redis-cli", "-p", port)
    bench.run(*cli, "SET", "before", "x" * 5000)
    load = bench.start("redis-benchmark", "-p", port, "-n", "20000", "-c", "20", "-q", "-t", "set,get")
    time.sleep(0.3)
    assert "started" in bench.run(*cli, "BGSAVE")
    load.wait(60)
    end = time.monotonic() + 20
    while "rdb_bgsave_in_progress:0" not in bench.run(*cli, "INFO", "persistence"):
        assert time.monotonic() < end, "BGSAVE does not end"
        time.sleep(0.1)
    assert "rdb_last_bgsave_status:ok" in bench.run(*cli, "INFO", "persistence")
    assert bench.run(*cli, "GET", "before").strip() == "x" * 5000
    assert load.returncode == 0, bench.logs()


@program("memcached")
def memcached(bench):
    bench.need("memcached")
    port = bench.port()
    bench.start("memcached", "-l", "127.0.0.1", "-p", port, "-U", port, "-u", "root")
    bench.listening(port)
    bench.run(sys.executable, "-c", f"""
import socket
s = socket.create_connection(("127.0.0.1", {port})); f = s.makefile("rwb")
for i in range(2000):
    v = b"%d" % i * 50
    f.write(b"set k%d 0 0 %d\\r\\n%s\\r\\n" % (i, len(v), v)); f.flush()
    assert f.readline() == b"STORED\\r\\n"
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(5); u.connect(("127.0.0.1", {port}))
for i in range(2000):
    u.send(b"%c%c\\0\\0\\0\\1\\0\\0get k%d\\r\\n" % (i >> 8, i & 255, i))
    assert b"%d" % i * 50 in u.recv(9000)
""")


@program("nginx with curl, wrk and reload under load", core=True)
def nginx(bench):
    bench.need("nginx", "curl")
    port = bench.port()
    source = bench.data("file", 3 << 20)
    os.chmod(bench.folder, 0o755)
    conf = bench.folder / "nginx.conf"
    conf.write_text(f"""
daemon off; master_process on; worker_processes 2; pid {bench.folder}/pid; error_log {bench.folder}/error;
user root; events {{ worker_connections 256; }}
http {{ access_log off; sendfile on; client_body_temp_path {bench.folder}/b; proxy_temp_path {bench.folder}/p;
fastcgi_temp_path {bench.folder}/f; uwsgi_temp_path {bench.folder}/u; scgi_temp_path {bench.folder}/s;
server {{ listen 127.0.0.1:{port}; root {bench.folder}; }} }}
""")
    bench.start("nginx", "-c", conf)
    bench.listening(port)
    load = None
    if shutil.which("wrk", path=PATH):
        load = bench.start("wrk", "-t1", "-c10", "-d3s", f"http://127.0.0.1:{port}/file")
    for number in range(6):
        bench.run("curl", "-sf", "-o", "arrived", f"http://127.0.0.1:{port}/file")
        same(source, bench.folder / "arrived")
        if number in (1, 3):
            bench.run("nginx", "-c", conf, "-s", "reload")
            time.sleep(0.3)
    if load:
        load.wait(30)
        assert "Non-2xx" not in bench.logs() and load.returncode == 0, bench.logs()


@program("PostgreSQL with pgbench")
def postgres(bench):
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found:
        raise Skip("PostgreSQL is not installed")
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        raise Skip("setpriv is not installed")
    bin_ = found[-1]
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        shutil.chown(bench.folder, user)
        os.chmod(bench.folder, 0o755)
    port = bench.port()
    init = bench.start(bin_ / "initdb", "-D", bench.folder / "db", "-U", "weft", "-A", "trust", "-N", user=user)
    assert init.wait(120) == 0, bench.logs()
    bench.start(bin_ / "postgres", "-D", bench.folder / "db", "-p", port, "-h", "127.0.0.1", "-k", bench.folder,
                user=user)
    bench.listening(port)
    at = ("-h", "127.0.0.1", "-p", port, "-U", "weft")
    deadline = time.monotonic() + 30
    while subprocess.run([str(w) for w in (bin_ / "psql", *at, "-c", "select 1", "postgres")], env=bench.plain,
                         capture_output=True).returncode:
        assert time.monotonic() < deadline, bench.logs()
        time.sleep(0.2)
    bench.run(bin_ / "pgbench", *at, "-i", "-q", "postgres", timeout=120)
    said = bench.run(bin_ / "pgbench", *at, "-c", "4", "-j", "2", "-T", "3", "postgres", timeout=120)
    assert "number of failed transactions: 0" in said, said
    said = bench.run(bin_ / "psql", *at, "-At", "-c", "select sum(abalance) = (select sum(delta) from "
                     "pgbench_history) from pgbench_accounts", "postgres")
    assert said.strip() == "t", said


@program("Python asyncio, streams and datagrams", core=True)
def asyncio(bench):
    bench.run(sys.executable, "-c", """
import asyncio, hashlib, os
class Echo(asyncio.DatagramProtocol):
    def connection_made(self, t): self.t = t
    def datagram_received(self, d, a): self.t.sendto(d, a)
class Client(asyncio.DatagramProtocol):
    def __init__(self): self.got = []; self.done = asyncio.get_running_loop().create_future()
    def datagram_received(self, d, a):
        self.got.append(d)
        if len(self.got) == 60: self.done.set_result(None)
async def serve(r, w):
    while d := await r.read(65536):
        w.write(d); await w.drain()
    w.close()
async def main():
    s = await asyncio.start_server(serve, "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*s.sockets[0].getsockname())
    data = os.urandom(3 << 20)
    async def put(): w.write(data); await w.drain(); w.write_eof()
    got, _ = await asyncio.gather(r.read(-1), put())
    assert got == data
    loop = asyncio.get_running_loop()
    t, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
    c, p = await loop.create_datagram_endpoint(Client, remote_addr=t.get_extra_info("sockname"))
    sent = [os.urandom(1000 + i) for i in range(60)]
    for d in sent: c.sendto(d)
    await asyncio.wait_for(p.done, 10)
    assert p.got == sent
    q = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    assert (await q.communicate(data))[0] == data
asyncio.run(main())
""")


@program("Node.js, HTTP and datagrams")
def node(bench):
    bench.need("node")
    said = bench.run("node", "-e", """
const http = require('http'), dgram = require('dgram'), c = require('crypto'), cp = require('child_process');
const data = c.randomBytes(2 << 20);
const s = http.createServer((q, r) => q.pipe(r)).listen(0, '127.0.0.1', () => {
  const q = http.request({port: s.address().port, method: 'POST'}, r => {
    const got = []; r.on('data', d => got.push(d)); r.on('end', () => {
      if (!Buffer.concat(got).equals(data)) process.exit(1);
      const e = dgram.createSocket('udp4'), u = dgram.createSocket('udp4'); let n = 0;
      e.on('message', (m, a) => e.send(m, a.port, a.address));
      u.on('message', m => { if (m.readUInt32LE(0) != n++) process.exit(2);
        if (n == 50) { e.close(); u.close(); s.close(); console.log(cp.execSync('echo fine').toString()); } });
      e.bind(0, '127.0.0.1', () => { for (let i = 0; i < 50; i++) { const b = Buffer.alloc(1200); b.writeUInt32LE(i);
        u.send(b, e.address().port, '127.0.0.1'); } });
    }); }); q.end(data); });
""")
    assert said.strip() == "fine", said


JAVA = """
import java.net.*; import java.nio.*; import java.nio.channels.*; import java.util.*;
class Talk { public static void main(String[] a) throws Exception {
  var l = new ServerSocket(0, 9, InetAddress.getLoopbackAddress());
  byte[] data = new byte[2 << 20]; new Random(1).nextBytes(data);
  var t = new Thread(() -> { try (var s = l.accept()) { s.getInputStream().transferTo(s.getOutputStream()); }
    catch (Exception e) { e.printStackTrace(); } }); t.start();
  var s = new Socket(l.getInetAddress(), l.getLocalPort());
  var w = new Thread(() -> { try { s.getOutputStream().write(data); s.shutdownOutput(); } catch (Exception e) { } });
  w.start(); if (!Arrays.equals(s.getInputStream().readAllBytes(), data)) System.exit(1);
  var e = DatagramChannel.open().bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
  var u = DatagramChannel.open().connect(e.getLocalAddress());
  for (int i = 0; i < 50; i++) { var b = ByteBuffer.allocate(1200); b.putInt(0, i); u.write(b); }
  for (int i = 0; i < 50; i++) { var b = ByteBuffer.allocate(2000); e.receive(b);
    if (b.position() != 1200 || b.getInt(0) != i) System.exit(2); }
  System.out.println("fine"); } }
"""


@program("OpenJDK, streams and datagram channels")
def java(bench):
    bench.need("java")
    (bench.folder / "Talk.java").write_text(JAVA)
    said = bench.run("java", "Talk.java", timeout=120)
    assert said.strip().endswith("fine"), said


@program("rsync over ssh")
def rsync(bench):
    bench.need("rsync", "sshd", "ssh", "ssh-keygen")
    if os.geteuid() != 0:
        raise Skip("sshd needs root here")
    Path("/run/sshd").mkdir(exist_ok=True)
    os.chmod(bench.folder, 0o700)
    key, host = bench.folder / "key", bench.folder / "host"
    for name in (key, host):
        bench.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", name)
    (bench.folder / "keys").write_text((bench.folder / "key.pub").read_text())
    port = bench.port()
    bench.start(shutil.which("sshd", path=PATH), "-D", "-e", "-f", "/dev/null", "-h", host, "-p", port,
                "-o", "ListenAddress=127.0.0.1", "-o", f"AuthorizedKeysFile={bench.folder}/keys",
                "-o", "StrictModes=no", "-o", "PidFile=none", "-o", "UsePAM=no")
    bench.listening(port)
    (bench.folder / "from").mkdir()
    names = [bench.data(f"from/{number}", 300_000) for number in range(10)]
    shell = f"ssh -p {port} -i {key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    bench.run("rsync", "-a", "-e", shell, f"{bench.folder}/from/", f"127.0.0.1:{bench.folder}/to/")
    for name in names:
        same(name, bench.folder / "to" / name.name)


GO = """
package main
import ("fmt"; "io"; "net"; "bytes"; "crypto/rand")
func main() {
  l, _ := net.Listen("tcp", "127.0.0.1:0")
  go func() { c, _ := l.Accept(); io.Copy(c, c); c.Close() }()
  data := make([]byte, 1<<20); rand.Read(data)
  c, _ := net.Dial("tcp", l.Addr().String())
  go func() { c.Write(data); c.(*net.TCPConn).CloseWrite() }()
  got, _ := io.ReadAll(c)
  if !bytes.Equal(got, data) { panic("differs") }
  fmt.Println("fine")
}
"""


@program("a static Go binary (unaffected)")
def go(bench):
    bench.need("go")
    (bench.folder / "talk.go").write_text(GO)
    build = subprocess.run(["go", "build", "-o", "talk", "talk.go"], cwd=bench.folder, capture_output=True, text=True,
                           env={**bench.plain, "CGO_ENABLED": "0", "GO111MODULE": "off"}, timeout=300)
    assert build.returncode == 0, build.stderr
    assert bench.run(bench.folder / "talk").strip() == "fine"


def one(library, title, function, mode):
    with tempfile.TemporaryDirectory(prefix="weft-unmodified-") as folder:
        bench = Bench(library, mode, folder)
        try:
            function(bench)
            return "passed", ""
        except Skip as reason:
            return "skipped", str(reason)
        except (AssertionError, subprocess.TimeoutExpired, OSError) as error:
            return "failed", f"{error}"[:3000]
        finally:
            bench.end()


def table(results):
    rows = ["| program | hooks without a rule | every UDP socket offloaded |", "| --- | --- | --- |"]
    for title in PROGRAMS:
        cells = [results.get((title, mode), ("not run", ""))[0] for mode in MODES]
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--only", default="")
    parser.add_argument("--full", action="store_true", help="all programs, not only those of every test run")
    parser.add_argument("--docs", help="put the table between the marks of this file")
    args = parser.parse_args()
    library = os.path.realpath(args.library)
    results = {}
    for title, (function, core) in PROGRAMS.items():
        if not re.search(args.only, title) or not (core or args.full or args.only):
            continue
        for mode in MODES:
            begin = time.monotonic()
            results[title, mode] = how, why = one(library, title, function, mode)
            print(f"{how} {title} ({mode}) {time.monotonic() - begin:.1f} s{': ' if why else ''}{why}", flush=True)
    if args.docs:
        page = Path(args.docs)
        begin, end = "<!-- programs -->\n", "<!-- end -->\n"
        head, rest = page.read_text().split(begin)
        page.write_text(head + begin + table(results) + end + rest.split(end)[1])
    count = {how: sum(result[0] == how for result in results.values()) for how in ("passed", "failed", "skipped")}
    print(", ".join(f"{number} {how}" for how, number in count.items()))
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
