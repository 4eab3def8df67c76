"""The guest as a machine: a link to it, QEMU, and shells in it."""

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import initramfs
import kernel
from kernel import Unavailable

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
from network import Namespaces  # noqa: E402
from process import Ended  # noqa: E402

HOST, GUEST = "10.87.1.1", "10.87.1.2"
ADAPTER = "10.87.1.3"  # on the host's end of the wire, and not the kernel's
BITS = 24
BOOT = 90.0  # seconds; about ten on an idle machine, all of it emulated
IDLE_BOOT = 10.0
PORTS = ("server", "client", "watch")
LATE = 124  # exit status of `timeout`


class Link:
    """A network namespace of our own with a TAP device in it: the host's end of the wire."""

    def __init__(self):
        if os.geteuid() != 0:
            raise Unavailable("a TAP device needs root")
        if not Path("/dev/net/tun").exists():
            raise Unavailable("there is no /dev/net/tun")
        self.namespaces = Namespaces()
        try:
            here = self.namespaces.add("siw")
            self.enter = here.enter
            kernel.run(*self.enter, "ip", "tuntap", "add", "tap0", "mode", "tap")
            here.up("tap0", f"{HOST}/{BITS}")
        except OSError as error:
            self.close()
            raise Unavailable(str(error)) from error
        except BaseException:
            self.close()
            raise

    def close(self):
        self.namespaces.close()


class Shell:
    """A shell in the guest. One command at a time."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.received = b""
        self.mark = None

    def start(self, command):
        """Starts a command."""
        assert self.mark is None, "the shell is busy"
        self.mark = secrets.token_hex(8)
        # The mark is put together there, so that no echo of the command can be taken for it.
        half = len(self.mark) // 2
        line = f"({command}) </dev/null; printf '\\n%s%s %d\\n' {self.mark[:half]} {self.mark[half:]} $?\n"
        self.received = b""
        self.socket.sendall(line.encode())

    def poll(self, seconds=0.0):
        """How the command ended, once it has; None when it has not within `seconds`."""
        end = re.compile(rb"\n" + self.mark.encode() + rb" (\d+)\n")
        deadline = time.monotonic() + seconds
        while True:
            found = end.search(self.received)
            if found:
                self.mark = None
                output = self.received[:found.start()].decode(errors="replace").replace("\r", "")
                return Ended(int(found[1]), output, "")
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                octets = self.socket.recv(65536)
            except TimeoutError:
                return None
            if not octets:
                raise Unavailable("the guest is gone")
            self.received += octets

    def run(self, command, seconds=30.0):
        """Runs a command that ends within `seconds`."""
        self.start(command)
        ended = self.poll(seconds)
        if ended is None:
            raise Unavailable(f"the guest does not answer to: {command}")
        return ended

    def close(self):
        self.socket.close()


class Machine:
    """A booted guest. `share` is a folder that it sees as /mnt."""

    def __init__(self, link, cache):
        for program in ("qemu-system-x86_64", "ip", "setpriv"):
            initramfs.found(program)
        self.folder = Path(tempfile.mkdtemp(prefix="weft-siw-"))
        self.share = self.folder / "share"
        self.share.mkdir()
        self.qemu = None
        self.shells = {}
        try:
            self.kernel = kernel.get(cache)
            self.boot(link, initramfs.build(self.kernel, self.folder))
        except BaseException:
            self.close()
            raise

    def boot(self, link, image):
        start = time.monotonic()
        with open(self.folder / "qemu.log", "wb") as log:
            # A guest does not outlive the run, however that ends.
            tied = ("setpriv", "--pdeathsig", "KILL")
            self.qemu = subprocess.Popen([*link.enter, *tied, *self.command(image)], stdin=subprocess.DEVNULL, stdout=log,
                                         stderr=log, start_new_session=True)
        console = self.folder / "console"
        while not (console.exists() and b"GUEST-READY" in console.read_bytes()):
            if self.qemu.poll() is not None:
                files = [file for file in (self.folder / "qemu.log", console) if file.exists()]
                said = " ".join(file.read_text(errors="replace") for file in files)
                raise Unavailable(f"the guest ended while it booted: {' '.join(said.split())[-300:]}")
            if time.monotonic() - start > BOOT:
                raise Unavailable(f"the guest did not boot within {BOOT:.0f} s")
            time.sleep(0.1)
        self.shells = {name: Shell(self.folder / name) for name in PORTS}
        self.seconds_to_boot = time.monotonic() - start

    def slack(self):
        """How much longer than on an idle machine things take here, as the boot showed."""
        return min(max(1.0, self.seconds_to_boot / IDLE_BOOT), 4.0)

    def command(self, image):
        # Without hardware virtualisation: it is to run in containers and virtual machines too.
        argv = [
            "qemu-system-x86_64", "-machine", "pc,usb=off,vmport=off", "-accel", "tcg,thread=multi", "-cpu", "max",
            "-smp", "2", "-m", "768", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", str(self.kernel.image), "-initrd", str(image),
            "-append", f"console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check weft.address={GUEST}/{BITS}",
            "-serial", f"file:{self.folder / 'console'}",
            "-netdev", "tap,id=wire,ifname=tap0,script=no,downscript=no,vhost=off",
            "-device", "virtio-net-pci,netdev=wire,romfile=",
            "-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
            "-virtfs", f"local,path={self.share},mount_tag=share,security_model=none",
        ]
        for name in PORTS:
            argv += ["-chardev", f"socket,id={name},path={self.folder / name},server=on,wait=off",
                     "-device", f"virtserialport,chardev={name},name={name}"]
        return argv

    def load_siw(self, variant, parameters=()):
        """Puts this siw in place of the one that is loaded."""
        ended = self.shells["watch"].run(" ".join(["/load-siw", variant, *parameters]))
        if ended.status != 0:
            raise Unavailable(f"siw {variant} {' '.join(parameters)}: {ended.output.strip()}")

    def delay(self, milliseconds):
        """Holds back what comes to the guest by so much; 0 for not at all."""
        # By their paths: the shell would take busybox's.
        ip, tc = "/usr/bin/ip", "/usr/bin/tc"
        steps = [f"{tc} qdisc del dev eth0 ingress 2>/dev/null; true"]
        if milliseconds:
            steps += [f"{ip} link set ifb0 up", f"{tc} qdisc replace dev ifb0 root netem delay {milliseconds}ms limit 100000",
                      f"{tc} qdisc add dev eth0 ingress",
                      f"{tc} filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0"]
        ended = self.shells["watch"].run(" && ".join(f"{{ {step}; }}" for step in steps))
        if ended.status != 0:
            raise Unavailable(f"netem: {ended.output.strip()}")

    def listens(self, port, seconds):
        """Waits until something in the guest listens on a TCP port."""
        look = f"i=0; until grep -q ':{port:04X} 0*:0000 0A' /proc/net/tcp; do sleep 0.1; i=$((i+1)); " \
               f"[ $i -lt {int(seconds * 10)} ] || exit {LATE}; done"
        return self.shells["watch"].run(look, 4 * seconds + 10).status == 0

    def fetch(self, path, name):
        """Moves a file of the guest's, if there is one, to the shared folder, where it is called `name`."""
        self.shells["watch"].run(f"mv {path} /mnt/{name}")

    def end_programs(self, name):
        """Ends every process of that name in the guest."""
        self.shells["watch"].run(f"killall -9 {name} 2>/dev/null")

    def close(self):
        for shell in self.shells.values():
            shell.close()
        if self.qemu:
            self.qemu.kill()
            self.qemu.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
