"""A release is one command, and the same octets whoever builds it."""

import hashlib
import os
from pathlib import Path

from bed import ROOT, Failed, case, files, need, said

BUILDING = 1800  # seconds on a busy machine
NEXT = "9.8.7"


@case()
def a_release_is_shown_without_being_made(bed):
    need("cargo", "git", "diff")
    before = said(["git", "status", "--porcelain"], cwd=ROOT)
    words = said(["cargo", "xtask", "release", "--dry-run", NEXT], BUILDING, cwd=ROOT)
    for line in (f'+version = "{NEXT}"', f"+## {NEXT} - ", f"weft_{NEXT}_amd64.deb", f"the tag v{NEXT}"):
        if line not in words:
            raise Failed(f"it does not say {line}:\n{words}")
    if said(["git", "status", "--porcelain"], cwd=ROOT) != before:
        raise Failed("it has changed something")
    for version in ("9.8", "0.0.1"):
        said(["cargo", "xtask", "release", "--dry-run", version], BUILDING, cwd=ROOT, status=1)


@case(full=True)
def a_release_is_a_commit_with_a_tag(bed):
    need("cargo", "git")
    place = bed.place("release")
    said(["git", "clone", "--quiet", ROOT, place])
    author = {f"GIT_{who}_{what}": "somebody" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    said(["cargo", "xtask", "release", NEXT], BUILDING, cwd=place, **author)
    words = said(["git", "show", "--stat", f"v{NEXT}"], cwd=place)
    for name in ("CHANGELOG.md", "Cargo.lock", "Cargo.toml", "README.md", "fuzz/Cargo.lock"):
        if name not in words:
            raise Failed(f"the tag's commit changes no {name}:\n{words}")
    if said(["git", "status", "--porcelain"], cwd=place).strip():
        raise Failed("something is left that is not committed")
    # The lock file has the same versions, or cargo would want to write it.
    said(["cargo", "tree", "--locked", "--offline", "--package", "weft", "--depth", "0"], cwd=place)


@case(full=True)
def two_people_who_build_one_commit_have_the_same_packages(bed):
    """The folders of the sources and of cargo have different names and lengths."""
    need("cargo", "git", "make", "dh", "rpmbuild")
    place = bed.place("two")
    cargo = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    made = []
    names = ("first", "the-other-ones/sources")
    # Before the first is built: somebody may commit meanwhile.
    for name in names:
        said(["git", "clone", "--quiet", ROOT, place / name])
    for number, name in enumerate(names):
        sources = place / name
        home = place / ("home" * (number + 1))
        home.mkdir()
        # What is fetched already is not fetched again; it has another path all the same.
        if (cargo / "registry").exists():
            (home / "registry").symlink_to(cargo / "registry")
        said(["make", "--directory", sources, "packages"], BUILDING, CARGO_TARGET_DIR=str(sources / "target"),
             CARGO_HOME=str(home))
        out = sources / "target/packages"
        made.append({file: hashlib.sha256((out / file).read_bytes()).hexdigest() for file in files(out)})
    if len(made[0]) < 5 or made[0] != made[1]:
        raise Failed(f"these are not the same: {made}")
