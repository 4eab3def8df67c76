#!/usr/bin/env python3
"""Makes the wheel of what scripts/install put into a folder.

    packages/python/make_wheel.py --version VERSION --staged FOLDER --out FOLDER

The wheel holds the same tree as every installation: its command goes to the environment's `bin`, everything else to the
same places under the environment's prefix (the wheel's `data`), where the command looks for its libraries. Beside that
it has the Python package `weft`. The platform tag is what the binaries can carry: the newest glibc that they ask for.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAME = "weft_rdma"
# Of the tree, what a Python environment has no use for: Python has licences and README in the wheel's own folder.
LEFT_OUT = ["share/doc"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--version", required=True)
    arguments.add_argument("--staged", required=True, type=Path)
    arguments.add_argument("--out", required=True, type=Path)
    of = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        lay_out(of.staged, tree, of.version)
        pack(tree, of.out)


def lay_out(staged, tree, version):
    """The wheel as a folder."""
    data = tree / f"{NAME}-{version}.data"
    shutil.copytree(staged, data / "data")
    (data / "data/bin").rename(data / "scripts")
    for name in LEFT_OUT:
        shutil.rmtree(data / "data" / name)
    shutil.copytree(HERE / "weft", tree / "weft", ignore=shutil.ignore_patterns("__pycache__"))
    binaries = [path for path in data.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    # The names of functions stay, for backtraces and profilers; line tables are two thirds of the size.
    subprocess.run([strip_for(machine(binaries[0])), "--strip-debug", *binaries], check=True)

    info = tree / f"{NAME}-{version}.dist-info"
    info.mkdir()
    (info / "licenses").mkdir()
    for name in ("LICENSE-MIT", "LICENSE-APACHE", "third-party.txt"):
        shutil.copy(staged / "share/doc/weft" / name, info / "licenses")
    # Where PEP 770 has bills of materials.
    (info / "sboms").mkdir()
    shutil.copy(staged / "share/doc/weft/weft.cdx.json", info / "sboms")
    description = (HERE / "description.md").read_text()
    (info / "METADATA").write_text((HERE / "metadata").read_text().replace("@VERSION@", version) + "\n" + description)
    (info / "entry_points.txt").write_text("[pytest11]\nweft = weft.pytest_plugin\n")
    tag = f"py3-none-{platform(binaries)}"
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: weft\nRoot-Is-Purelib: false\nTag: {tag}\n")


def platform(binaries):
    """The platform tag: the newest glibc that must be there, and the machine."""
    major, minor = max(version for binary in binaries for version in glibc_versions(binary))
    return f"manylinux_{major}_{minor}_{machine(binaries[0])}"


def machine(binary):
    """What the binary is for, as Python's packages call it."""
    header = said(["readelf", "--file-header", binary])
    return {"X86-64": "x86_64", "AArch64": "aarch64"}[re.search(r"Machine:.* (\S+)$", header, re.MULTILINE)[1]]


def strip_for(kind):
    """The strip that knows such binaries."""
    across = f"{kind}-linux-gnu-strip"
    if shutil.which(across):
        return across
    if kind != os.uname().machine:
        package = f"binutils-{kind.replace('_', '-')}-linux-gnu"
        sys.exit(f"make_wheel: there is no {across}: install the Debian package {package}")
    return "strip"


def glibc_versions(binary):
    """The versions of glibc without which the loader refuses the binary; a weak one it does without."""
    for line in said(["readelf", "--version-info", "--wide", binary]).splitlines():
        if found := re.search(r"Name: GLIBC_(\d+)\.(\d+)\S*\s+Flags: (\S+)", line):
            if found[3] != "WEAK":
                yield int(found[1]), int(found[2])


def said(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def pack(tree, out):
    """Zips the folder, with the list of its files and their sums."""
    for python in (sys.executable, "/usr/bin/python3"):
        has = subprocess.run([python, "-c", "import wheel"], capture_output=True)
        if has.returncode == 0:
            subprocess.run([python, "-m", "wheel", "pack", "--dest-dir", out, tree], check=True,
                           stdout=subprocess.DEVNULL)
            break
    else:
        sys.exit("make_wheel.py: there is no Python package wheel: install the Debian package python3-wheel")
    tag = re.search(r"^Tag: (.*)$", next(tree.glob("*.dist-info/WHEEL")).read_text(), re.MULTILINE)[1]
    version = next(tree.glob("*.dist-info")).name.removesuffix(".dist-info")
    print(out / f"{version}-{tag}.whl")


if __name__ == "__main__":
    main()
