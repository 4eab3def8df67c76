"""The examples in `examples/`, by the steps of their own CI files, in a clean system that stands for a runner."""

import shutil
from pathlib import Path

from bed import ROOT, PATIENCE, Failed, case, need, said
from clean import USER, System

import steps as of

RUNNER = "bookworm"
HOME = "/home/somebody"


def runner(bed):
    """A clean system in which an ordinary user may use sudo, as on a hosted runner."""
    def make():
        system = System(bed, RUNNER, "sudo,ca-certificates")
        (system.root / "etc/sudoers.d/somebody").write_text("somebody ALL=(ALL) NOPASSWD: ALL\n")
        return system
    return bed.once("runner", make)


def with_rust(bed):
    """The same with the Rust of this machine, compilers and cmake, as a hosted runner has them, in `/opt/rust/bin`."""
    need("rustc", "cargo")

    def make():
        system = runner(bed)
        install = "apt-get install -y --no-install-recommends build-essential cmake"
        system.run(f"apt-get update && {install}", 4 * PATIENCE, network=True)
        here = Path(said(["rustc", "--print", "sysroot"]).strip())
        unused = shutil.ignore_patterns("share", "rust-analyzer*")
        shutil.copytree(here, system.root / "opt/rust", symlinks=True, ignore=unused)
        return system
    return bed.once("rust", make)


def without_python(bed):
    """The same as an image that has no Python which makes environments."""
    system = runner(bed)
    system.run("apt-get purge -y '?installed ?name(python3.*-venv)' && apt-get autoremove -y --purge", 4 * PATIENCE)
    return system


def play(bed, project, steps, user=USER, system=None):
    """Carries out the steps in a copy of an example."""
    system = system or runner(bed)
    place = system.root / HOME.lstrip("/") / project
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(ROOT / "examples" / project, place)
    system.run(f"chown -R {USER} {HOME}/{project}", network=True)
    temporary = system.root / "tmp/runner"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(mode=0o777)
    temporary.chmod(0o777)
    path = temporary / "path"
    path.touch(mode=0o666)
    path.chmod(0o666)
    variables = {"RUNNER_TEMP": "/tmp/runner", "GITHUB_PATH": "/tmp/runner/path", "HOME": HOME, "DEBIAN_FRONTEND":
                 "noninteractive", "PIP_FIND_LINKS": system.take(bed.package("wheel"))}
    variables |= system.certificates()
    if "PIP_CERT" in variables:
        variables["CARGO_HTTP_CAINFO"] = variables["PIP_CERT"]
    told = ""
    for step in steps:
        (temporary / "step").write_text(step.script)
        found = ":".join([*path.read_text().split(), "/opt/rust/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"])
        words = [f"{name}='{value}'" for name, value in (variables | step.variables | {"PATH": found}).items()]
        told += system.run(f"cd {HOME}/{project} && setpriv --reuid={user} --regid={user} --clear-groups env -i "
                           f"{' '.join(words)} bash -eo pipefail /tmp/runner/step", 4 * PATIENCE, network=True)
    return told


@case(full=True)
def github_runs_the_c_example(bed):
    need("mmdebstrap")
    shows(play(bed, "c", of.github(ROOT / "examples/c/.github/workflows/test.yml")), "weft0: is there an echo?")


@case(full=True)
def github_runs_the_python_example(bed):
    shows(play(bed, "python", of.github(ROOT / "examples/python/.github/workflows/test.yml")), "3 passed")


@case(full=True)
def gitlab_runs_the_c_example(bed):
    # A job of GitLab's docker executor is root in its image.
    steps = of.gitlab(ROOT / "examples/c/.gitlab-ci.yml")
    shows(play(bed, "c", steps, 0, without_python(bed)), "weft0: is there an echo?")


@case(full=True)
def github_runs_the_rust_example(bed):
    steps = of.github(ROOT / "examples/rust/.github/workflows/test.yml")
    shows(play(bed, "rust", steps, system=with_rust(bed)), "test result: ok. 2 passed")


@case(full=True)
def gitlab_runs_the_rust_example(bed):
    steps = of.gitlab(ROOT / "examples/rust/.gitlab-ci.yml")
    with_rust(bed)
    shows(play(bed, "rust", steps, 0, without_python(bed)), "test result: ok. 2 passed")


def shows(told, words):
    if words not in told:
        raise Failed(f"it does not say {words!r}:\n{told[-2000:]}")
