"""Tests that need an RDMA device: one looks at it in this process, one runs a program on it."""

import ctypes
import subprocess
import time

import pytest


def devices():
    """The names of this machine's RDMA devices."""
    verbs = ctypes.CDLL("libibverbs.so.1")
    verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
    verbs.ibv_get_device_name.restype = ctypes.c_char_p
    count = ctypes.c_int()
    found = verbs.ibv_get_device_list(ctypes.byref(count))
    return [verbs.ibv_get_device_name(found[at]).decode() for at in range(count.value)]


def test_there_is_a_device():
    assert devices()


@pytest.mark.parametrize("size", [64, 4096])
def test_ping(size):
    words = ["-a", "127.0.0.1", "-p", "7174", "-S", str(size), "-C", "5"]
    with subprocess.Popen(["rping", "-s", *words]) as server:
        client = None
        for _ in range(20):  # the server may not listen yet
            client = subprocess.run(["rping", "-c", "-V", *words], timeout=60, check=False)
            if client.returncode == 0:
                break
            time.sleep(0.2)
        assert client.returncode == 0
        assert server.wait(timeout=60) == 0
