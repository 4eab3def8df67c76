"""Weft inside a program: the C example, built against an installation, runs without `weft run` and without rdma-core;
and the crates for Rust programs are whole."""

from bed import ROOT, Failed, case, need, said
from debs import in_own_network
from installations import installation

BUILDING = 1800  # seconds on a busy machine
RDMA_CORE = ("libibverbs", "librdmacm")


def built(bed, target):
    """That target of the example's Makefile, built against an installation."""
    need("cc", "make", "pkg-config")
    place = bed.place("inside")
    prefix = installation(bed)
    said(["cp", ROOT / "examples/c/echo.c", ROOT / "examples/c/Makefile", place])
    said(["make", "--directory", place, target], PKG_CONFIG_PATH=str(prefix / "share/pkgconfig"))
    return place / target


@case()
def a_program_with_the_library_needs_no_weft_run(bed):
    echoes(built(bed, "echo-inside"))


@case()
def a_program_with_the_archive_needs_no_library_of_weft(bed):
    program = built(bed, "echo-static")
    needed = said(["readelf", "--dynamic", program])
    if "libweft" in needed:
        raise Failed(f"it needs {needed}")
    echoes(program)


def echoes(program):
    needed = said(["readelf", "--dynamic", program])
    if any(library in needed for library in RDMA_CORE):
        raise Failed(f"it needs rdma-core: {needed}")
    words = in_own_network(str(program))
    if words.strip() != "weft0: is there an echo?":
        raise Failed(f"it says: {words}")


@case(full=True)
def crates_build_from_their_packages(bed):
    """As crates.io would have them: each is built from what was packed of it, with the others from there as well."""
    need("cargo")
    crates = ("weft-iwarp", "weft-verbs", "weft-os", "weft-settings", "weft-engine")
    names = [word for crate in crates for word in ("--package", crate)]
    said(["cargo", "package", "--allow-dirty", *names], BUILDING, cwd=ROOT)
