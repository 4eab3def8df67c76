"""Random runs: one seed after the other for a time, and once more what fails."""

import time
from typing import NamedTuple

import again

REPEATS = 3
# Runs that are made, beyond the time, for what has to be seen once.
RUNS_TO_SHOW = 10


class Played(NamedTuple):
    """How runs went: passed, or failed and why; how many there were, and the sums of what they counted."""

    how: str
    why: str
    runs: int
    sums: dict


def play(run, label, seeds, seconds, shows=None):
    """Runs `run(seed)`, which gives what is wrong, if anything, and what it counted, with one of the seeds after the
    other for so long. A run that fails is told by its seed and played again: flaky, and told with the label, is what
    does not fail then. What the sum `shows` counts has to be there in the end."""
    end = time.monotonic() + seconds
    sums, runs, flaky = {}, 0, None

    def fails(why):
        return Played("failed", why, runs, sums)

    while runs == 0 or time.monotonic() < end or (shows and not sums.get(shows) and runs < RUNS_TO_SHOW):
        seed = next(seeds)
        why, counts = run(seed)
        runs += 1
        if why:
            print(f"failed {label}, seed {seed}: {why}", flush=True)
            failed = [repeat for repeat in (run(seed)[0] for _ in range(REPEATS)) if repeat]
            print(f"seed {seed} again ({label}): {len(failed)} of {REPEATS} runs fail", flush=True)
            # The order of threads is no seed's: twice in one run is no bad luck.
            if failed or flaky:
                return fails(f"seed {seed}: {failed[0] if failed else why}")
            flaky = f"seed {seed}: {why}"
            continue
        for name, value in counts.items():
            sums[name] = sums.get(name, 0) + value
    if shows and not sums.get(shows) and not flaky:
        return fails(f"no {shows} in {runs} runs")
    if flaky:
        again.say(label, flaky)
    return Played("passed", "", runs, sums)
