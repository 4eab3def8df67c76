"""The wheel: in a fresh environment it has the command, serves a Python process, and leaves nothing behind."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from bed import Failed, Skip, case, files, need, said

# The devices that libibverbs lists, without a binding: what a test suite would see.
DEVICES = """
import ctypes
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
count = ctypes.c_int()
devices = verbs.ibv_get_device_list(ctypes.byref(count))
names = [verbs.ibv_get_device_name(devices[at]).decode() for at in range(count.value)]
"""
SERVED_SCRIPT = f"""
import sys, weft
print("begins", flush=True)
weft.serve_this_process()
assert weft.served()
{DEVICES}
print(names, sys.argv[1:])
"""
TEST = f"""
def test_device(capfd):
    {DEVICES.strip().replace(chr(10), chr(10) + "    ")}
    assert names == ["weft0"]
"""


def environment(bed):
    """A fresh Python environment with the wheel in it, and nothing from the network."""
    def make():
        place = bed.place("venv")
        made = subprocess.run([sys.executable, "-m", "venv", place], capture_output=True, text=True, check=False)
        if made.returncode:
            raise Skip(f"python3 -m venv: {(made.stdout + made.stderr).strip()[-300:]}")
        before = files(place)
        said([place / "bin/pip", "install", "--no-index", bed.package("wheel")])
        return place, before
    return bed.once("environment", make)


@case()
def wheel_gives_the_command(bed):
    need("ibv_devices")
    place, _ = environment(bed)
    for command in ([place / "bin/weft"], [place / "bin/python", "-m", "weft"]):
        if "weft0" not in said([*command, "run", "--", "ibv_devices"]):
            raise Failed(f"{command}: ibv_devices under it shows no weft0")


@case()
def a_python_process_serves_itself(bed):
    place, _ = environment(bed)
    script = bed.place("served") / "script.py"
    script.write_text(SERVED_SCRIPT)
    words = said([place / "bin/python", "-u", script, "a b", "c"])
    if words.split("\n")[:3] != ["begins", "begins", "['weft0'] ['a b', 'c']"]:
        raise Failed(f"it says: {words}")
    words = said([place / "bin/python", script], status=1, WEFT_OFF="1")
    if "NotServed: Weft is off here" not in words:
        raise Failed(f"with WEFT_OFF it says: {words}")


@case()
def pytest_runs_under_weft(bed):
    found = importlib.util.find_spec("pytest")
    if found is None:
        raise Skip("there is no pytest")
    place, _ = environment(bed)
    suite = bed.place("suite")
    (suite / "test_device.py").write_text(TEST)
    pytest = [place / "bin/python", "-m", "pytest", "-p", "no:cacheprovider", suite]
    with_pytest = {"PYTHONPATH": str(Path(found.origin).parents[1])}
    words = said([*pytest, "--weft"], **with_pytest)
    if "weft: served" not in words or "1 passed" not in words:
        raise Failed(f"pytest --weft says: {words}")
    words = said([*pytest, "--weft", "--weft-option=--crc=maybe"], status=4, **with_pytest)
    if "--weft: " not in words or "maybe" not in words:
        raise Failed(f"with a wrong option it says: {words}")
    (suite / "conftest.py").write_text("import weft\nweft.serve_this_process()\n")
    if "1 passed" not in said(pytest, **with_pytest):
        raise Failed("a conftest.py that serves the process: the test did not pass")


@case()
def a_damaged_wheel_says_what_to_do(bed):
    place = bed.place("damaged")
    shutil.copytree(environment(bed)[0], place, symlinks=True, dirs_exist_ok=True)
    (place / "lib/weft/libweft.so").unlink()
    words = said([place / "bin/weft", "run", "--", "true"], status=125)
    if "install the package again" not in words:
        raise Failed(f"without libweft.so it says: {words}")
    (place / "bin/weft").unlink()
    words = said([place / "bin/python", "-m", "weft", "run", "--", "true"], status=125)
    if "pip install --force-reinstall weft-rdma" not in words:
        raise Failed(f"without the command it says: {words}")


@case()
def wheel_leaves_nothing_when_it_is_removed(bed):
    place, before = environment(bed)
    said([place / "bin/pip", "uninstall", "--yes", "weft-rdma"])
    del bed.made["environment"]
    left = {name for name in files(place) - before if "__pycache__" not in name}
    if left:
        raise Failed(f"left behind: {sorted(left)}")
