"""`pytest --weft`: the whole run under Weft, with its workers and every program that tests start."""

import pytest

import weft


def pytest_addoption(parser, pluginmanager):
    weft._pytest_plugins = pluginmanager
    group = parser.getgroup("weft", "RDMA without an RDMA device")
    group.addoption("--weft", action="store_true", help="run under Weft: RDMA calls find the device weft0")
    group.addoption("--weft-option", action="append", default=[], metavar="OPTION",
                    help="an option of `weft run`, for instance --weft-option=--log=info; may be given again")


# First: what others configure would be done twice.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    if not config.getoption("--weft"):
        return
    try:
        weft.serve_this_process(*config.getoption("--weft-option"))
    except weft.NotServed as error:
        raise pytest.UsageError(f"--weft: {error}") from None


def pytest_report_header(config):
    return "weft: served" if weft.served() else None
