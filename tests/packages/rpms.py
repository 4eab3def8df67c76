"""The RPM: it is unpacked and used, as no system of its family is at hand, and it asks for versions of glibc alone."""

import subprocess

from bed import PATIENCE, ROOT, Failed, beside, case, files, need, pinged, pings, said
from contents import FLOOR, installed, same
from debs import in_own_network


def unpacked(bed):
    """The tree of the RPM."""
    def make():
        need("rpm2cpio", "cpio")
        place = bed.place("rpm")
        with subprocess.Popen(["rpm2cpio", bed.package("rpm")], stdout=subprocess.PIPE) as archive:
            done = subprocess.run(["cpio", "--extract", "--make-directories", "--quiet"], cwd=place, text=True,
                                  stdin=archive.stdout, errors="replace", capture_output=True, timeout=PATIENCE,
                                  check=False)
        if done.returncode or archive.returncode:
            raise Failed(f"rpm2cpio and cpio: {done.stderr}")
        return place
    return bed.once("rpm unpacked", make)


@case(full=True)
def rpm_has_the_files_of_an_installation(bed):
    same({name.removesuffix(".gz") for name in files(unpacked(bed) / "usr")}, installed(bed))


@case(full=True)
def rpm_asks_for_no_package_and_offers_no_library(bed):
    asked = said(["rpm", "--query", "--package", "--requires", bed.package("rpm")]).split("\n")
    known = ("libc.so.6(", "libm.so.6(", "libgcc_s.so.1(", "ld-linux-", "rtld(GNU_HASH)", "rpmlib(")
    others = [line for line in asked if line and not line.startswith(known)]
    newer = [line for line in asked if "(GLIBC_" in line and
             tuple(map(int, line.split("(GLIBC_")[1].split(")")[0].split("."))) > FLOOR]
    offered = said(["rpm", "--query", "--package", "--provides", bed.package("rpm")]).split("\n")
    libraries = [line for line in offered if ".so" in line]
    if others or newer or libraries:
        raise Failed(f"asked for: {others + newer}; offered: {libraries}")


@case(full=True)
def rpm_works_where_it_is_unpacked(bed):
    need("rping", "ibv_rc_pingpong", "unshare")
    pinged(in_own_network(pings(unpacked(bed) / "usr/bin/weft")))


@case(full=True)
def rpmlint_is_content_with_the_rpm(bed):
    need("rpmlint")
    words = said(["rpmlint", "--config", ROOT / "packages/rpm/rpmlint.toml", bed.package("rpm"),
                  beside(bed.package("rpm"), "weft-devel")])
    if "0 errors, 0 warnings" not in words:
        raise Failed(words)
