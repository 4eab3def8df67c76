"""What packages hold: the same files, asked for by nothing newer than what is said."""

import sys
import zipfile

from bed import ROOT, Failed, beside, case, files, need, said

sys.path.append(str(ROOT / "packages/python"))
import make_wheel  # noqa: E402

FLOOR = (2, 34)  # the newest glibc that a build on Debian 12 may ask for: Ubuntu 22.04, RHEL 9 and Debian 12 have it
BINARIES = ["weft", "libweft.so", "libweft_preload.so", "weft-libs/libibverbs.so.1", "weft-libs/librdmacm.so.1"]
NEEDED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libweft.so"}


@case()
def binaries_ask_for_no_newer_glibc(bed):
    for name in BINARIES:
        newest = max(make_wheel.glibc_versions(bed.build / name), default=(0, 0))
        if newest > FLOOR:
            raise Failed(f"{name} asks for glibc {newest[0]}.{newest[1]}; {FLOOR[0]}.{FLOOR[1]} is what is promised")


@case()
def binaries_need_no_other_library(bed):
    for name in BINARIES:
        needed = {line.split("[")[1].rstrip("]") for line in said(["readelf", "-d", bed.build / name]).splitlines()
                  if "(NEEDED)" in line}
        if needed - NEEDED:
            raise Failed(f"{name} needs {sorted(needed - NEEDED)}")


def installed(bed, part="run"):
    """The files of that part of `make install`, from the prefix."""
    place = bed.place("installed")
    said([ROOT / "scripts/install", "--part", part, bed.build, place])
    return files(place)


@case()
def deb_has_the_files_of_an_installation(bed):
    need("dpkg-deb")
    place = bed.place("deb")
    said(["dpkg-deb", "--extract", bed.package("deb"), place])
    # Debian's own places and forms: its zsh looks elsewhere, its documents are compressed, licences are one file.
    plain = {name.removesuffix(".gz").replace("vendor-completions", "site-functions") for name in files(place / "usr")}
    added = {"share/doc/weft/copyright", "share/doc/weft/changelog", "share/lintian/overrides/weft"}
    same(plain - added, installed(bed) - {"share/doc/weft/LICENSE-MIT", "share/doc/weft/LICENSE-APACHE"})


@case()
def deb_for_development_has_the_rest(bed):
    need("dpkg-deb")
    place = bed.place("deb")
    said(["dpkg-deb", "--extract", beside(bed.package("deb"), "weft-dev"), place])
    same({name for name in files(place / "usr") if not name.startswith("share/doc")}, installed(bed, "develop"))


@case()
def wheel_has_the_files_of_an_installation(bed):
    names = zipfile.ZipFile(bed.package("wheel")).namelist()
    parts = [name.split("/", 2) for name in names if ".data/" in name]
    plain = {("bin/" if kind == "scripts" else "") + name for _, kind, name in parts}
    same(plain, {name for name in installed(bed) if not name.startswith("share/doc")})


@case(full=True)
def bill_of_materials_is_what_its_schema_says(bed):
    need("python3")
    place, bill = bed.place("schemas"), bed.build / "weft.cdx.json"
    said(["python3", "-m", "venv", place])
    said([place / "bin/pip", "install", "--quiet", "cyclonedx-python-lib[json-validation]"], 300)
    said([place / "bin/python", "-c", f"""
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
wrong = JsonStrictValidator(SchemaVersion.V1_5).validate_str(open({str(bill)!r}).read())
assert wrong is None, wrong
"""])


@case(full=True)
def packages_made_again_are_the_same_octets(bed):
    for kind in ("deb", "rpm", "wheel"):
        first = bed.package(kind)
        again = bed.build_package(kind, out=bed.place("made-again"))
        if first.read_bytes() != again.read_bytes():
            raise Failed(f"{first.name} differs")


def same(these, those):
    if these != those:
        raise Failed(f"only in the package: {sorted(these - those)}; only in an installation: {sorted(those - these)}")
