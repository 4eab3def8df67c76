"""Clean systems, made of nothing but a release of Debian: the package is installed as its users do it, used by an
ordinary user, upgraded and removed."""

import os
import re
import shutil
import time
from pathlib import Path

from bed import MAKING, PATIENCE, Failed, Skip, case, need, pinged, pings, said

SUITES = ("bookworm", "trixie")
USER = 1000
# What the package manager keeps for itself.
NOT_OURS = ("/var/lib/dpkg/", "/var/lib/apt/", "/var/cache/", "/var/log/", "/tmp/", "/proc/", "/root/", "/home/",
            "/dev/")


class System:
    """A release of Debian in a folder, with the RDMA programs that people try first, and without Weft. `more` are
    further words for mmdebstrap."""

    def __init__(self, bed, suite, programs="rdmacm-utils,ibverbs-utils", more=()):
        need("mmdebstrap", "unshare", "setpriv")
        if said(["id", "-u"]).strip() != "0":
            raise Skip("making a system and going into it needs root")
        self.root = bed.place(f"system-{suite}")
        programs += ",iproute2,python3-venv"
        try:
            said(["mmdebstrap", "--quiet", "--variant=apt", f"--include={programs}", suite, self.root,
                  *more], MAKING)
        except Failed as failed:
            raise Skip(f"no {suite} from the mirror: {str(failed).splitlines()[-1]}") from None
        self.run(f"useradd --create-home --uid {USER} somebody")

    def run(self, script, seconds=PATIENCE, network=False):
        """What a shell script prints that root runs there, in a network of its own or (`network`) in the machine's."""
        enter = ["unshare", "--pid", "--fork", "--mount", f"--root={self.root}", "--mount-proc"]
        begin = "cd /" if network else "cd /; ip link set lo up"
        return said([*enter, *([] if network else ["--net"]), "sh", "-ec", f"{begin}\n{script}"], seconds,
                    PATH="/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root", LC_ALL="C.UTF-8")

    def run_as_user(self, script, seconds=PATIENCE):
        """The same as an ordinary user."""
        (self.root / "tmp/script").write_text(script)
        return self.run(f"setpriv --reuid={USER} --regid={USER} --clear-groups --inh-caps=-all --bounding-set=-all "
                        "env HOME=/home/somebody sh -e /tmp/script", seconds)

    def take(self, file):
        """Brings a file there; its path."""
        shutil.copy(file, self.root / "tmp")
        return f"/tmp/{file.name}"

    def certificates(self):
        """What pip needs to know of the way to the registry of this machine: nothing, or its certificates."""
        file = os.environ.get("PIP_CERT")
        return {"PIP_CERT": self.take(Path(file))} if file else {}

    def files(self):
        listed = self.run("find / -xdev -not -type d").splitlines()
        return {name for name in listed if not name.startswith(NOT_OURS) and "__pycache__" not in name}

    def timed(self, script, run=None):
        begin = time.monotonic()
        (run or self.run)(script)
        return f"{time.monotonic() - begin:.1f} s"


def newer(bed, deb):
    """The same package with a later version and one file less."""
    place = bed.place("newer")
    said(["dpkg-deb", "--raw-extract", deb, place])
    control = place / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", r"\g<0>+next", control.read_text(), flags=re.MULTILINE))
    (place / "usr/share/man/man1/weft-link.1.gz").unlink()
    said(["dpkg-deb", "--build", "--root-owner-group", place, bed.folder / "weft_next.deb"])
    return bed.folder / "weft_next.deb"


def deb_in(bed, suite):
    deb = bed.package("deb")
    system = System(bed, suite)
    before = system.files()
    path = system.take(deb)
    took = system.timed(f"apt-get install -y {path}")
    pinged(system.run_as_user(pings("weft")))
    installed = system.files() - before
    system.run(f"apt-get install -y {system.take(newer(bed, deb))}")
    left = before | installed - {"/usr/share/man/man1/weft-link.1.gz"}
    same_files("after the upgrade", system.files(), left)
    system.run("apt-get purge -y weft")
    same_files("after the removal", system.files(), before)
    print(f"    {suite}: apt-get install {took}, {deb.stat().st_size / 1e6:.1f} MB", flush=True)

    wheel = system.take(bed.package("wheel"))
    install = f"python3 -m venv ~/venv && ~/venv/bin/pip install --quiet --no-index {wheel}"
    took = system.timed(install, system.run_as_user)
    pinged(system.run_as_user(pings("~/venv/bin/weft")))
    print(f"    {suite}: venv and pip install {took}, {bed.package('wheel').stat().st_size / 1e6:.1f} MB", flush=True)


def same_files(when, are, should_be):
    if are != should_be:
        raise Failed(f"{when}: too many {sorted(are - should_be)}, missing {sorted(should_be - are)}")


def register(suite):
    def play(bed):
        deb_in(bed, suite)
    play.__name__ = f"deb_and_wheel_in_a_clean_{suite}"
    case(full=True)(play)


for each in SUITES:
    register(each)
