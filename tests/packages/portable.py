"""Builds for older systems and for arm64 (scripts/portable): what they ask for, and that they serve programs there."""

import os
import re
import shutil
from pathlib import Path

from bed import MAKING, ROOT, Failed, Skip, case, need, pinged, pings, said
from clean import System
from contents import BINARIES, make_wheel

BUILDING = 3600  # seconds on a busy machine
FLOOR = (2, 28)  # RHEL 8 has that glibc
# Its releases stay when their time is over; a mirror may keep one so old.
ANY_AGE = ("--aptopt=Acquire::Check-Valid-Until \"false\"",)
QEMU = "/usr/bin/qemu-aarch64-static"
ARM = "aarch64-unknown-linux-gnu"
# How the kernel knows an ELF file of AArch64, and what of it counts.
MAGIC = r"\x7fELF\x02\x01\x01" + r"\x00" * 9 + r"\x02\x00\xb7\x00"
MASK = r"\xff" * 7 + r"\x00" + r"\xff" * 8 + r"\xfe\xff\xff\xff"


def target():
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")


def mirror():
    """Where this machine has Debian's packages from."""
    need("mmdebstrap", "apt-get")
    listed = said(["apt-get", "indextargets", "--format", "$(REPO_URI)"]).split()
    found = next((uri for uri in listed if re.search("/debian/?$", uri)), None)
    if not found:
        raise Skip("no mirror of Debian's packages is known here")
    return found


def older(bed):
    """A build of this machine's kind for older systems."""
    def make():
        need("mmdebstrap")
        said([ROOT / "scripts/portable", "x86_64"], BUILDING)
        return target() / "x86_64-unknown-linux-gnu/release"
    return bed.once("older", make)


def asks_for_no_newer_glibc(build):
    for name in BINARIES:
        newest = max(make_wheel.glibc_versions(build / name), default=(0, 0))
        if newest > FLOOR:
            raise Failed(f"{name} asks for glibc {newest[0]}.{newest[1]}; {FLOOR[0]}.{FLOOR[1]} is what is promised")


@case(full=True)
def a_build_for_older_systems_asks_for_no_newer_glibc(bed):
    asks_for_no_newer_glibc(older(bed))


@case(full=True)
def a_build_for_older_systems_serves_programs_of_debian_11(bed):
    build = older(bed)
    system = System(bed, "bullseye", more=[*ANY_AGE, f"deb {mirror()} bullseye main"])
    for name in BINARIES:
        (system.root / "opt/weft" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(build / name, system.root / "opt/weft" / name)
    pinged(system.run_as_user(pings("/opt/weft/weft")))
    # Its pip is the oldest that knows such wheels (PEP 600).
    wheel = bed.build_package("wheel", build)
    path = system.take(wheel)
    took = system.timed(f"python3 -m venv ~/venv && ~/venv/bin/pip install --quiet --no-index {path}",
                        system.run_as_user)
    pinged(system.run_as_user(pings("~/venv/bin/weft")))
    print(f"    bullseye: venv and pip install {took}, {wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB", flush=True)


class Arm:
    """A system of arm64 in a folder, with the usual programs and a build for it. Its programs run by qemu, in a user
    namespace that has a table of binary formats of its own (Linux 6.7)."""

    def __init__(self, bed):
        need("mmdebstrap", "unshare", QEMU)
        if os.geteuid() != 0:
            raise Skip("going into a system needs root")
        self.debian = mirror()
        self.root = bed.place("arm")
        programs = ("rdmacm-utils,ibverbs-utils,libc6,libgcc-s1,dash,coreutils,iproute2,util-linux,python3-minimal,"
                    "python3-venv")
        said(["mmdebstrap", "--quiet", "--variant=extract", "--architectures=arm64", f"--include={programs}",
              "bookworm", self.root, f"deb {self.debian} bookworm main"], MAKING)
        self.build = self.make(bed) / ARM / "release"
        for name in BINARIES:
            (self.root / "opt/weft" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.build / name, self.root / "opt/weft" / name)

    def make(self, bed):
        """Builds in a system of Debian whose Rust has a standard library for arm64; the target folder."""
        need("cargo")
        system = bed.place("compiler")
        programs = ("cargo,rustc,libstd-rust-dev:arm64,gcc-aarch64-linux-gnu,libc6-dev:arm64,make,git,python3,binutils,"
                    "binutils-aarch64-linux-gnu")
        said(["mmdebstrap", "--quiet", "--variant=apt", "--architectures=amd64,arm64", f"--include={programs}",
              *ANY_AGE, "sid", system, f"deb {self.debian} sid main"], MAKING)
        made = target() / "arm64"
        said([ROOT / "scripts/portable", "aarch64", "--fetch"], MAKING, CARGO_TARGET_DIR=str(made))
        said(["cargo", "fetch", "--target", ARM], MAKING, cwd=ROOT)
        cargo = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
        script = []
        for there, here in (("src", ROOT), ("cargo", cargo), ("target", made)):
            (system / there).mkdir()
            script.append(f"mount --bind {here} {system / there}")
        variables = ("PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LC_ALL=C.UTF-8 CARGO_HOME=/cargo "
                     "CARGO_TARGET_DIR=/target CARGO_NET_OFFLINE=true")
        script += [f"mount -t proc proc {system}/proc", f"mount --bind /dev {system}/dev",
                   f"exec chroot {system} env -i {variables} /src/scripts/portable aarch64"]
        said(["unshare", "--mount", "sh", "-ec", "\n".join(script)], BUILDING)
        return made

    def run(self, script, seconds=MAKING):
        """What a shell script prints there, run as root of a user namespace, with a network of its own."""
        (self.root / "tmp/script").write_text(script)
        enter = f"""
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf %s ':weft-arm64:M::{MAGIC}:{MASK}:{QEMU}:F' >/proc/sys/fs/binfmt_misc/register
mkdir -p {self.root}/proc {self.root}/dev
mount -t proc proc {self.root}/proc
mount --rbind /dev {self.root}/dev
ip link set lo up
exec chroot {self.root} /usr/bin/env -i PATH=/opt/weft:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root sh -e /tmp/script
"""
        namespaces = ["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child"]
        return said(["unshare", *namespaces, "sh", "-ec", enter], seconds)


def arm(bed):
    return bed.once("arm", lambda: Arm(bed))


@case(full=True)
def a_build_for_arm64_asks_for_no_newer_glibc(bed):
    asks_for_no_newer_glibc(arm(bed).build)


@case(full=True)
def a_build_for_arm64_serves_programs_there(bed):
    pinged(arm(bed).run(pings("weft")))
    words = arm(bed).run("weft doctor rping")
    if "verdict: yes" not in words:
        raise Failed(f"the doctor says: {words}")


@case(full=True)
def a_wheel_for_arm64_is_installed_there(bed):
    build = arm(bed).build
    wheel = bed.build_package("wheel", build)
    shutil.copy(wheel, arm(bed).root / "tmp")
    arm(bed).run(f"python3 -m venv /tmp/venv && /tmp/venv/bin/pip install --quiet --no-index /tmp/{wheel.name}")
    pinged(arm(bed).run(pings("/tmp/venv/bin/weft")))
