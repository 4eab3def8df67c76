"""Weft from Python: the command, and a test suite that runs itself under it.

    weft run -- PROGRAM              the command that comes with this package, as everywhere
    python -m weft run -- PROGRAM    the same, where the folder of commands is not in PATH
    weft.serve_this_process()        this Python process and what it loads are served from here on
    pytest --weft                    the same for a run of pytest
"""

import os
import stat
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

DISTRIBUTION = "weft-rdma"
# Says that this process, by its number, was executed by serve_this_process: not a second time, whatever happens. (A
# name that began with WEFT_ would be taken for a setting.)
EXECUTED = "_WEFT_PYTHON_EXECUTED"

__all__ = ["NotServed", "command", "serve_this_process", "served"]
__version__ = metadata.version(DISTRIBUTION)


class NotServed(RuntimeError):
    """This process cannot be served. The message says why and what to do."""


def command():
    """The path of the command `weft` of this package, a `pathlib.Path`; `NotServed` where it is not whole."""
    for place in _places():
        if place.is_file():
            return place
    raise NotServed(f"the command weft of the package {DISTRIBUTION} is gone: "
                    f"pip install --force-reinstall {DISTRIBUTION}")


def _places():
    """Where an installer may have put the command: as it recorded it, else in this Python's folder of commands."""
    for file in metadata.files(DISTRIBUTION) or ():
        if file.name == "weft" and file.parent.name == "bin":
            yield Path(file.locate()).resolve()
    yield Path(sysconfig.get_path("scripts")) / "weft"


def served():
    """Whether this process was started so that its RDMA calls come to Weft."""
    preloads = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    folders = os.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
    return (any(Path(library).name == "libweft.so" for library in preloads)
            or any(Path(folder).name == "weft-libs" for folder in folders))


def serve_this_process(*options):
    """Executes this process again under Weft, as it was started; returns at once where it is served already.

    `options` are those of `weft run`, such as "--log", "info". What the process has done so far is forgotten, so this
    belongs at the beginning: into a conftest.py, or before the first import of a library that uses RDMA. Raises
    `NotServed` when Weft cannot do its part."""
    if served():
        return
    if os.environ.get(EXECUTED) == str(os.getpid()):
        raise NotServed("this process was executed under Weft and is still not served: is WEFT_OFF set, or does the "
                        "interpreter's start-up script take LD_PRELOAD and LD_LIBRARY_PATH out of the environment?")
    weft = command()
    arguments = _arguments()
    _try(weft, options, arguments[0])
    _release_output()
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[EXECUTED] = str(os.getpid())
    _execute(weft, ["run", *options, "--", *arguments])


def _arguments():
    """The words this process was started with, the interpreter by its path."""
    words = Path("/proc/self/cmdline").read_bytes().split(b"\0")[:-1]
    return [sys.executable, *map(os.fsdecode, words[1:])]


def _try(weft, options, interpreter):
    """Raises `NotServed` with what `weft run` would say: after the execution nobody is left to catch it."""
    try:
        shown = subprocess.run([weft, "run", *options, "--show", "--", interpreter], capture_output=True, text=True)
    except OSError as error:
        raise NotServed(why_not(weft, error)) from None
    if shown.returncode:
        raise NotServed(shown.stderr.strip())
    obstacles = [line.split(None, 1)[1] for line in shown.stdout.splitlines() if line.startswith("obstacle ")]
    if obstacles:
        raise NotServed(f"{interpreter} cannot be served: {obstacles[0]}")
    if any(line.split() == ["mode", "off"] for line in shown.stdout.splitlines()):
        raise NotServed("Weft is off here: unset WEFT_OFF, or take `off` out of weft.toml")


def why_not(weft, error):
    """In words, why the kernel does not execute the command."""
    if isinstance(error, FileNotFoundError):
        # The file is there, so it is its loader that is not.
        return f"{weft} needs the C library glibc, and this system has another (Alpine's is musl): use a glibc image"
    if isinstance(error, PermissionError) and os.stat(weft).st_mode & stat.S_IXUSR:
        return f"{weft} may not be executed: is its folder mounted noexec? Install it somewhere else"
    if isinstance(error, PermissionError):
        return f"{weft} may not be executed: pip install --force-reinstall {DISTRIBUTION}"
    return f"{weft}: {error.strerror}"


def _execute(weft, arguments):
    try:
        os.execv(weft, [str(weft), *arguments])
    except OSError as error:
        raise NotServed(why_not(weft, error)) from None


# pytest's plugins, while it runs: set by weft.pytest_plugin.
_pytest_plugins = None


def _release_output():
    """Gives back what pytest has put in the place of the standard output, or the next process would write into it."""
    capture = _pytest_plugins and _pytest_plugins.getplugin("capturemanager")
    if capture:
        capture.stop_global_capturing()
