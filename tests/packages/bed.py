"""What the cases of packages share: a place to work in, packages that are made once, commands that must succeed."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120  # seconds that one command may take, unless a case says otherwise
MAKING = 600  # seconds that a package or a clean system may take, of a slow mirror and a busy machine
PINGS = 10
CASES = {}


class Skip(Exception):
    """The machine lacks what a case needs."""


class Failed(Exception):
    """A command did not do what it should."""


def case(full=False):
    """Registers a function as a case by its name; one that is `full` is played only when all are asked for."""
    def register(function):
        CASES[function.__name__] = (function, full)
        return function
    return register


class Bed:
    """`build`: the folder with weft and its libraries. What is made stands in `folder`, which goes with this object."""

    def __init__(self, build):
        self.build = Path(build).resolve()
        self.kept = tempfile.TemporaryDirectory(prefix="weft-packages-", ignore_cleanup_errors=True)
        self.folder = Path(self.kept.name)
        self.folder.chmod(0o755)  # an ordinary user is to look at what is in it
        self.made = {}

    def place(self, name):
        """An empty folder for a case."""
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        return place

    def once(self, name, make):
        """What `make()` gives, made when it is first asked for; why it cannot be is told each time."""
        if name not in self.made:
            try:
                self.made[name] = make()
            except Skip as skip:
                self.made[name] = skip
        if isinstance(self.made[name], Skip):
            raise self.made[name]
        return self.made[name]

    def package(self, kind):
        """The package of that kind, by its path."""
        return self.once(kind, lambda: self.build_package(kind))

    def build_package(self, kind, build=None, out=None):
        """A package of this build or another, by its path."""
        words = [ROOT / "scripts/package", build or self.build, out or self.folder / "made", kind]
        done = subprocess.run(words, text=True, capture_output=True, timeout=MAKING, check=False)
        if done.returncode and "install the Debian package" in done.stderr:
            raise Skip(done.stderr.strip())
        if done.returncode:
            raise Failed(f"scripts/package {kind}: {done.stderr.strip()[-2000:]}")
        return Path(done.stdout.strip())

    def close(self):
        self.kept.cleanup()


def beside(package, name):
    """The package of that name that was made with this one."""
    return package.with_name(package.name.replace("weft", name, 1))


def need(*commands):
    """Skips the case where one of these commands is not there."""
    for command in commands:
        if shutil.which(command, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            raise Skip(f"there is no {command}")


def said(command, seconds=PATIENCE, cwd="/", status=0, **variables):
    """What a command prints on both outputs; `Failed` when it ends with another status than that."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "LD_"))}
    done = subprocess.run([str(word) for word in command], env=environment | variables, cwd=cwd, text=True,
                          errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          timeout=seconds, check=False)
    if done.returncode != status:
        words = " ".join(map(str, command))
        raise Failed(f"{words[:300]}: exit status {done.returncode}\n{done.stdout.strip()[-2000:]}")
    return done.stdout


def files(folder):
    """The paths of the files in a folder, from there."""
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if not path.is_dir()}


def pings(weft, programs=""):
    """A shell script: rping and a pingpong of queue pairs that are brought up by GID, each between two processes under
    `weft` in a network of its own, by whoever runs it. `programs` is put in front of PATH."""
    return f"""
set -eu
PATH={programs or "/usr/bin"}:$PATH:/usr/sbin
try() {{ # NAME SERVER CLIENT
    {weft} run -- $2 >/tmp/server-$$ 2>&1 &
    server=$!
    n=0
    until {weft} run -- $3 >/tmp/client-$$ 2>&1; do
        n=$((n + 1))
        if [ $n = 20 ]; then cat /tmp/server-$$ /tmp/client-$$; exit 1; fi
        sleep 0.2
    done
    wait $server || {{ cat /tmp/server-$$; exit 1; }}
    echo "$1 works as user $(id -u)"
}}
try rping 'rping -s -a 127.0.0.1 -C {PINGS} -v' 'rping -c -a 127.0.0.1 -C {PINGS} -v -V'
try pingpong 'ibv_rc_pingpong -g 0 -n 100' 'ibv_rc_pingpong -g 0 -n 100 127.0.0.1'
rm -f /tmp/server-$$ /tmp/client-$$
"""


def pinged(words):
    """Complains unless what that script printed says that both went well."""
    for name in ("rping", "pingpong"):
        if f"{name} works" not in words:
            raise Failed(f"{name} is not said to work:\n{words[-2000:]}")
