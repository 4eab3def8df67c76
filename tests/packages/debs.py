"""The Debian package: it asks for the C library alone, and works from where it is unpacked."""

import re
import subprocess

from bed import Failed, Skip, beside, case, need, pinged, pings, said

DEPENDS = {"libc6", "libgcc-s1"}


@case()
def deb_depends_on_the_c_library_alone(bed):
    depends = said(["dpkg-deb", "--field", bed.package("deb"), "Depends"])
    names = set(re.findall(r"[a-z][a-z0-9.+-]+(?= |,|$)", re.sub(r"\([^)]*\)", "", depends)))
    if names != DEPENDS:
        raise Failed(f"it depends on {depends.strip()}")


@case()
def deb_has_no_scripts_that_run_at_installation(bed):
    place = bed.place("control")
    said(["dpkg-deb", "--control", bed.package("deb"), place])
    scripts = {path.name for path in place.iterdir()} - {"control", "md5sums"}
    if scripts:
        raise Failed(f"it has {sorted(scripts)}")


@case()
def deb_works_where_it_is_unpacked(bed):
    need("ibv_devices", "rping", "ibv_rc_pingpong", "unshare")
    place = bed.place("unpacked")
    said(["dpkg-deb", "--extract", bed.package("deb"), place])
    if "weft0" not in said([place / "usr/bin/weft", "run", "--", "ibv_devices"]):
        raise Failed("ibv_devices under it shows no weft0")
    pinged(in_own_network(pings(place / "usr/bin/weft")))


def in_own_network(script, *more):
    """What a shell script prints that has a network to itself; `more` are further options of unshare."""
    enter = ["unshare", "--user", "--map-root-user", "--net", *more]
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode:
        raise Skip("user namespaces are not allowed here")
    return said([*enter, "sh", "-c", f"ip link set lo up\n{script}"])


@case(full=True)
def lintian_is_content_with_the_deb(bed):
    need("lintian")
    # Words that it finds in machine code are by chance.
    said(["lintian", "--fail-on", "error,warning,info", "--suppress-tags", "spelling-error-in-binary", "--allow-root",
          bed.package("deb"), beside(bed.package("deb"), "weft-dev")], 300)
