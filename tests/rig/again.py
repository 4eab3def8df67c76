"""What failed on a machine runs once more, alone, and is flaky if it passes then.

Tests with threads, sockets and real programs can fail because the machine stood still for a second. Each runner of
such tests plays its failed cells again when nothing else runs, and prints a line `flaky NAME: WHY` for each that
passes the second time; `scripts/test` reads these lines, shows them at its end, and fails where there are too many. A
flaky case counts as passed. Tests without a clock (pure code, virtual time, layouts) are never run again.

`scripts/test` compiles the tests of cargo beside the cases of other runners, at the lowest priority, and names that
process group in TESTS_BESIDE; `alone()` stops it for as long as a failed case runs again.
"""
import contextlib
import os
import signal
import time

from counts import Counts


@contextlib.contextmanager
def alone():
    """Stops what `scripts/test` runs beside the cases, and lets it go on afterwards."""
    send_beside(signal.SIGSTOP)
    try:
        yield
    finally:
        send_beside(signal.SIGCONT)


def send_beside(signal_number):
    """Sends a signal to the process group that is named in TESTS_BESIDE, if it is there."""
    group = os.environ.get("TESTS_BESIDE", "")
    if group.isdecimal() and int(group) > 1:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(group), signal_number)


def play_each(names, play):
    """Plays cases in turn, prints a line for each and gives their counts.

    `play(name)` gives how a case went (`passed`, `failed` or `skipped`) and why."""
    counts = Counts()
    for name in names:
        begin = time.monotonic()
        how, why = play(name)
        if how == "failed":
            print(f"failed {name}: {why}", flush=True)
            with alone():
                how, second = play(name)
            if how == "passed":
                say(name, why)
            why = second
        counts.add(how)
        print(f"{how} {name} {time.monotonic() - begin:.1f} s{': ' if why else ''}{why}", flush=True)
    return counts


def say(name, why):
    """Prints the line of a case that failed, for the reason `why`, and passed when it ran alone."""
    words = " ".join(str(why).split())
    print(f"flaky {name}: {words[:400]}", flush=True)
