"""A release is one command."""

from bed import ROOT, Failed, case, need, said

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
