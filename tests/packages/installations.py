"""Installations that are not as they should be: the command says in one sentence what to do."""

from bed import ROOT, Failed, case, need, said
from debs import in_own_network

OTHER = 'const char weft_version[] = "99.0.0";\n'


def installation(bed):
    place = bed.place("installation")
    said([ROOT / "scripts/install", bed.build, place])
    return place


@case()
def libraries_of_another_version_are_named(bed):
    need("gcc")
    place = installation(bed)
    source = bed.place("other") / "other.c"
    source.write_text(OTHER)
    said(["gcc", "-shared", "-o", place / "lib/weft/libweft.so", source])
    words = said([place / "bin/weft", "run", "--", "true"], status=125)
    if "is of Weft 99.0.0" not in words or "install both from one package" not in words:
        raise Failed(f"it says: {words}")


@case()
def a_folder_without_execution_is_named(bed):
    need("unshare", "mount")
    place, mounted = installation(bed), bed.place("noexec")
    words = in_own_network(f"""
mount -t tmpfs -o noexec none {mounted}
cp -r {place}/lib/weft {mounted}
{place}/bin/weft run --libdir {mounted}/weft -- true || echo "status $?"
""", "--mount")
    if "mounted noexec" not in words or "status 125" not in words:
        raise Failed(f"it says: {words}")


@case()
def what_was_installed_goes_and_the_rest_stays(bed):
    place = installation(bed)
    kept = place / "lib/weft/kept"
    kept.write_text("somebody's\n")
    said([ROOT / "scripts/install", "--remove", bed.build, place])
    left = [path.name for path in place.rglob("*") if path.is_file()]
    if left != ["kept"]:
        raise Failed(f"left: {left}")
