"""Programs that are about streams first: under hooks they do what they do without."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench import PATH, Skip, program, same


@program("iperf3, TCP", core=True,
         what="it says that all went well")
def iperf3_tcp(bench):
    bench.need("iperf3")
    source = bench.data("source", 8 << 20)
    for how in (("-F", source, "-P", "2"), ("-R",), ("-P", "8")):
        port = bench.port()
        bench.start("iperf3", "-s", "-1", "-p", port)
        bench.bound(port, "tcp")
        bench.run("iperf3", "-c", "127.0.0.1", "-p", port, "-t", "1", *how)


@program("socat, TCP and UDP", core=True,
         what="SHA-256 of 4 MB over TCP, 100 KB over UDP")
def socat(bench):
    bench.need("socat")
    source = bench.data("source", 4 << 20)
    port = bench.port()
    sink = bench.start("socat", "-u", f"TCP-LISTEN:{port},reuseaddr", "CREATE:arrived")
    bench.bound(port, "tcp")
    bench.run("socat", "-u", f"OPEN:{source}", f"TCP:127.0.0.1:{port},retry=20,interval=0.1")
    bench.well(sink)
    same(source, bench.folder / "arrived")
    port = bench.port()
    small = bench.data("small", 100 * 1024)
    sink = bench.start("socat", "-u", "-b", "1024", f"UDP-RECV:{port},rcvbuf=4000000", "CREATE:datagrams")
    bench.bound(port, "udp")
    bench.run("socat", "-u", "-b", "1024", f"OPEN:{small}", f"UDP-SENDTO:127.0.0.1:{port}")
    arrived = bench.folder / "datagrams"
    end = time.monotonic() + 30
    while time.monotonic() < end and not (arrived.exists() and arrived.stat().st_size == small.stat().st_size):
        time.sleep(0.05)
    sink.end(30)
    same(small, arrived)


@program("redis, with BGSAVE under load and a replica", core=True,
         what="values, of a replica too, and the state of BGSAVE while redis-benchmark runs")
def redis(bench):
    bench.need("redis-server", "redis-cli", "redis-benchmark")
    port = bench.port()
    replica = bench.port()
    for one, more in ((port, ()), (replica, ("--replicaof", f"127.0.0.1 {port}", "--dbfilename", "replica.rdb"))):
        bench.start("redis-server", "--port", one, "--dir", bench.folder, "--save", "", "--appendonly", "no", *more)
        bench.bound(one)
    cli = ("redis-cli", "-p", port)
    bench.run(*cli, "SET", "before", "x" * 5000)
    load = bench.start("redis-benchmark", "-p", port, "-n", "20000", "-c", "20", "-q", "-t", "set,get")
    time.sleep(0.3)
    assert "started" in bench.run(*cli, "BGSAVE")
    bench.well(load, 60)
    end = time.monotonic() + 60
    while "rdb_bgsave_in_progress:0" not in bench.run(*cli, "INFO", "persistence"):
        assert time.monotonic() < end, "BGSAVE does not end"
        time.sleep(0.1)
    assert "rdb_last_bgsave_status:ok" in bench.run(*cli, "INFO", "persistence")
    bench.run(*cli, "SET", "after", "y" * 50000)
    # The number of replicas that have all that was written before.
    assert bench.run(*cli, "WAIT", "1", "30000").strip() == "1"
    for one in (port, replica):
        for key, value in (("before", "x" * 5000), ("after", "y" * 50000)):
            assert bench.run("redis-cli", "-p", one, "GET", key).strip() == value


@program("memcached",
         what="2000 values, set over TCP, got over UDP")
def memcached(bench):
    bench.need("memcached")
    port = bench.port()
    bench.start("memcached", "-l", "127.0.0.1", "-p", port, "-U", port, "-u", "root")
    bench.bound(port)
    bench.run(sys.executable, "-c", f"""
import socket
s = socket.create_connection(("127.0.0.1", {port})); f = s.makefile("rwb")
for i in range(2000):
    v = b"%d" % i * 50
    f.write(b"set k%d 0 0 %d\\r\\n%s\\r\\n" % (i, len(v), v)); f.flush()
    assert f.readline() == b"STORED\\r\\n"
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(20); u.connect(("127.0.0.1", {port}))
for i in range(2000):
    u.send(b"%c%c\\0\\0\\0\\1\\0\\0get k%d\\r\\n" % (i >> 8, i & 255, i))
    assert b"%d" % i * 50 in u.recv(9000)
""")


@program("nginx with curl, wrk and reload under load", core=True,
         what="SHA-256 of 3 MB six times, two reloads while wrk runs, no error of wrk")
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
    bench.bound(port)
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
        bench.well(load)
        assert "Non-2xx" not in bench.logs(), bench.logs()


# Hosts are told of by UDP, as gmetric does for others, since gmond is mute: a machine's own metrics differ.
@program("Ganglia, gmond polled by gmetad",
         what="cluster, host and metric of gmond's report, and of what gmetad tells of it at both of its ports")
def ganglia(bench):
    bench.need("gmond", "gmetad", "gmetric")
    port, xml, interactive = (bench.port() for _ in range(3))
    (bench.folder / "rrds").mkdir()
    (bench.folder / "gmond.conf").write_text(f"""
globals {{ daemonize = no setuid = no mute = yes deaf = no host_dmax = 0 cleanup_threshold = 3600 gexec = no }}
cluster {{ name = "measured" }}
udp_recv_channel {{ port = {port} bind = 127.0.0.1 family = inet4 }}
tcp_accept_channel {{ port = {port} bind = 127.0.0.1 }}
""")
    (bench.folder / "gmetric.conf").write_text(f"""
globals {{ setuid = no }}
udp_send_channel {{ host = 127.0.0.1 port = {port} }}
""")
    (bench.folder / "gmetad.conf").write_text(f"""
data_source "measured" 1 127.0.0.1:{port}
gridname "grid"
setuid off
rrd_rootdir "{bench.folder}/rrds"
xml_port {xml}
interactive_port {interactive}
trusted_hosts 127.0.0.1
""")
    bench.start("gmond", "-f", "-c", bench.folder / "gmond.conf")
    bench.bound(port)
    bench.run("gmetric", "-c", bench.folder / "gmetric.conf", "-n", "load_one", "-v", "0.25", "-t", "float", "-u", "",
              "-S", "198.18.0.1:node-1")
    # It is a client of gmond, and a server of who asks it.
    bench.start("gmetad", "-d", "1", "-c", bench.folder / "gmetad.conf", environment=bench.client)
    bench.bound(xml)
    told = ('<CLUSTER NAME="measured"', '<HOST NAME="node-1" IP="198.18.0.1"', '<METRIC NAME="load_one" VAL="0.25"')
    deadline = time.monotonic() + 60
    said = ""
    while not all(words in said for words in told):
        assert time.monotonic() < deadline, f"gmetad does not tell of the host: {said[-600:]}\n{bench.logs()}"
        time.sleep(0.5)
        said = bench.run(sys.executable, "-c", REPORT, xml, "")
        assert said.endswith("</GANGLIA_XML>\n"), said[-600:]
    said = bench.run(sys.executable, "-c", REPORT, interactive, "/measured/node-1\n")
    assert all(words in said for words in told) and said.endswith("</GANGLIA_XML>\n"), said[-600:]


REPORT = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(sys.argv[2].encode())
while octets := s.recv(65536):
    sys.stdout.buffer.write(octets)
"""


@program("PostgreSQL with pgbench",
         what="no failed transaction; sum of the accounts against the history")
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
    bench.well(init, 120)
    bench.start(bin_ / "postgres", "-D", bench.folder / "db", "-p", port, "-h", "127.0.0.1", "-k", bench.folder,
                user=user)
    bench.bound(port)
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


@program("Python asyncio, streams and datagrams", core=True,
         what="3 MB over TCP and a pipe, 60 datagrams in order")
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


@program("Node.js, HTTP and datagrams",
         what="2 MB over HTTP, 50 datagrams in order, a child process")
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


@program("OpenJDK, streams and datagram channels",
         what="2 MB over TCP, 50 datagrams in order")
def java(bench):
    bench.need("java")
    (bench.folder / "Talk.java").write_text(JAVA)
    said = bench.run("java", "Talk.java", timeout=120)
    assert said.strip().endswith("fine"), said


# sshd confines itself, and a connection over DDP would be its end: it is left on TCP (docs/sockets.md).
@program("rsync and scp over ssh", what="SHA-256 of ten files, and of one", without=("ddp",))
def rsync_over_ssh(bench):
    bench.need("rsync", "sshd", "ssh", "ssh-keygen", "scp")
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
                "-o", "StrictModes=no", "-o", "PidFile=none", "-o", "UsePAM=no",
                "-o", "Subsystem=sftp internal-sftp")
    bench.bound(port)
    (bench.folder / "from").mkdir()
    names = [bench.data(f"from/{number}", 300_000) for number in range(10)]
    options = f"-i {key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    shell = f"ssh -p {port} {options}"
    bench.run("rsync", "-a", "-e", shell, f"{bench.folder}/from/", f"127.0.0.1:{bench.folder}/to/")
    for name in names:
        same(name, bench.folder / "to" / name.name)
    bench.run("scp", "-q", "-P", port, *options.split(), names[0], f"127.0.0.1:{bench.folder}/copied")
    same(names[0], bench.folder / "copied")


@program("rsync daemon", what="SHA-256 of ten files, sent and fetched")
def rsync_daemon(bench):
    bench.need("rsync")
    port = bench.port()
    for folder in ("from", "kept", "back"):
        (bench.folder / folder).mkdir()
    names = [bench.data(f"from/{number}", 300_000) for number in range(10)]
    conf = bench.folder / "rsyncd.conf"
    conf.write_text(f"use chroot = no\n[kept]\npath = {bench.folder}/kept\nread only = no\n"
                    f"uid = {os.geteuid()}\ngid = {os.getegid()}\n")
    bench.start("rsync", "--daemon", "--no-detach", "--config", conf, "--address", "127.0.0.1", "--port", port)
    bench.bound(port)
    kept = f"rsync://127.0.0.1:{port}/kept/"
    bench.run("rsync", "-a", f"{bench.folder}/from/", kept)
    bench.run("rsync", "-a", kept, f"{bench.folder}/back/")
    for name in names:
        same(name, bench.folder / "back" / name.name)


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


@program("a static Go binary (unaffected)",
         what="1 MB over TCP", without=("ddp", "ddp-server", "prefer", "prefer-client"))
def go(bench):
    bench.need("go")
    (bench.folder / "talk.go").write_text(GO)
    build = subprocess.run(["go", "build", "-o", "talk", "talk.go"], cwd=bench.folder, capture_output=True, text=True,
                           env={**bench.plain, "CGO_ENABLED": "0", "GO111MODULE": "off"}, timeout=300)
    assert build.returncode == 0, build.stderr
    assert bench.run(bench.folder / "talk").strip() == "fine"


