"""What failed on a machine runs once more, alone, and is flaky if it passes then.

Tests with threads, sockets and real programs can fail because the machine stood still for a second. Each runner of
such tests plays its failed cells again when nothing else runs, and prints a line `flaky NAME: WHY` for each that
passes the second time; `scripts/test` reads these lines, shows them at its end, and fails where there are too many. A
flaky case counts as passed. Tests without a clock (pure code, virtual time, layouts) are never run again.
"""
import time

from counts import Counts


def play_each(names, play):
    """Plays cases in turn, prints a line for each and gives their counts.

    `play(name)` gives how a case went (`passed`, `failed` or `skipped`) and why."""
    counts = Counts()
    for name in names:
        begin = time.monotonic()
        how, why = play(name)
        if how == "failed":
            print(f"failed {name}: {why}", flush=True)
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
