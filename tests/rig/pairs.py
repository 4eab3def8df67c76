"""Two builds of Weft measured in turn: when there are pairs enough, and what their ratios say.

The same method as `weft bench --beside` (eval/bench/src/pairs.rs says why): the figure is the Hodges-Lehmann estimate of
the logarithms of the ratios within the pairs, its 95 % interval Wilcoxon's signed-rank one. Pairs go on until the
interval is within 2 % of the ratio or there are 30 of them; a figure is slower when the interval lies below 0.98.
Ratios are turned so that above 1 this build is the better one, for times as for rates.
"""

import datetime
import math
import statistics
import subprocess
from pathlib import Path

THIS, BESIDE = "this", "beside"
FEWEST = 6  # pairs from which on there is a 95 % interval
MOST = 30  # pairs
PRECISION = 0.02  # of the ratio
SLOWER_BELOW = 0.98
BEYOND_EACH_END = 0.025  # of all cases
PATIENCE = 3  # pairs without a figure after which there will be none
NO_SLOWER, SLOWER, TOO_WIDE, NO_FIGURE = "no slower", "SLOWER", "not decided: too wide", "NO FIGURE of both builds"
TOO_FEW = f"not decided: fewer than {FEWEST} pairs"


class NoBuild(Exception):
    """A path is not a build of Weft that runs."""


def critical_value(n):
    """The largest rank sum that chance stays at or below in 2.5 % of all cases; None where even zero is more likely."""
    ways = [1]
    for rank in range(1, n + 1):
        ways = [(ways[at] if at < len(ways) else 0) + (ways[at - rank] if at >= rank else 0)
                for at in range(len(ways) + rank)]
    below, value = 0, None
    for rank_sum, count in enumerate(ways):
        below += count
        if below > BEYOND_EACH_END * 2 ** n:
            break
        value = rank_sum
    return value


def estimate(ratios):
    """The typical ratio, and the ends of its 95 % interval or None; None without ratios."""
    if not ratios:
        return None
    logarithms = [math.log(ratio) for ratio in ratios]
    means = sorted((one + two) / 2 for at, one in enumerate(logarithms) for two in logarithms[at:])
    left_out = critical_value(len(ratios))
    interval = None if left_out is None else (math.exp(means[left_out]), math.exp(means[-1 - left_out]))
    return math.exp(statistics.median(means)), interval


def narrow(ratios):
    """Whether the ends of the interval are within 2 % of the ratio."""
    ratio, interval = estimate(ratios) or (None, None)
    return interval is not None and (interval[0] >= ratio * (1 - PRECISION) and interval[1] <= ratio * (1 + PRECISION))


def order(number):
    """The builds in the order in which pair `number`, counted from 1, has them."""
    return (THIS, BESIDE) if number % 2 else (BESIDE, THIS)


def verdict(ratios):
    """What the ratios say of this build."""
    ratio, interval = estimate(ratios) or (None, None)
    if ratio is None:
        return NO_FIGURE
    if interval is None:
        return TOO_FEW
    if interval[1] < SLOWER_BELOW:
        return SLOWER
    return NO_SLOWER if interval[0] >= SLOWER_BELOW or narrow(ratios) else TOO_WIDE


class Pairs:
    """The figures of one measurement, of both builds. `lower` names those of which less is better."""

    def __init__(self, lower=()):
        self.lower, self.taken = frozenset(lower), []

    def ratios(self, name):
        """The ratio of each pair that has this figure of both builds."""
        both = [(pair[THIS][name], pair[BESIDE][name]) for pair in self.taken
                if all((pair[build] or {}).get(name) for build in (THIS, BESIDE))]
        return [beside / this if name in self.lower else this / beside for this, beside in both]

    def names(self):
        """Every figure that was taken, in the order in which they came."""
        return list(dict.fromkeys(name for pair in self.taken for figures in pair.values() for name in figures or {}))

    def enough(self, most=MOST):
        """Whether there are. Looks after an even number only, so that each build has come first as often."""
        taken, names = len(self.taken), self.names()
        if not any(self.ratios(name) for name in names):
            return taken >= min(most, PATIENCE)
        return taken >= most or taken % 2 == 0 and all(narrow(self.ratios(name)) for name in names)

    def take(self, measure, most=MOST):
        """Calls `measure(build, number)` for both builds of pair after pair; it returns figures by name, or None."""
        while not self.enough(most):
            number = len(self.taken) + 1
            pair = {build: measure(build, number) for build in order(number)}
            self.taken.append(pair)
        return self

    def lines(self, title):
        """A row of a table for each figure."""
        if not self.names():
            yield row(title, NO_FIGURE, [])
        for name in self.names():
            yield row(f"{title}: {name}", verdict(self.ratios(name)), self.ratios(name))

    def slower(self):
        """The figures that are slower; all of them where a build gave none."""
        if not self.names():
            return [NO_FIGURE]
        return [name for name in self.names() if verdict(self.ratios(name)) in (SLOWER, NO_FIGURE)]


HEAD = ("Ratio: this build over the one beside it, within pairs; above 1 this build is the better one.\n\n"
        "| figure | ratio | 95 % interval | pairs | verdict |\n| --- | ---: | ---: | ---: | --- |")


def row(title, said, ratios):
    """A row of the table."""
    ratio, interval = estimate(ratios) or (None, None)
    figure = "-" if ratio is None else f"{ratio:.3f}"
    ends = "-" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
    return f"| {title} | {figure} | {ends} | {len(ratios)} | {said} |"


def positive(word):
    """A number of pairs, from a command line."""
    number = int(word)
    if number < 1:
        raise ValueError(word)
    return number


def options(parser, what):
    """Adds the options of two builds to a command line."""
    parser.add_argument("--beside", type=Path, metavar="PATH",
                        help=f"measure {what} of a second build in turn with the first: its folder (target/release), "
                             "the prefix it is installed under, or the file itself")
    parser.add_argument("--pairs", type=positive, default=MOST, metavar="N", help="pairs at most (%(default)s)")


def find(given, inside, probe):
    """The file of the build at `given`, which is the file itself or a folder that has it at one of `inside`; `probe`
    makes of the file a command that ends well when the build runs."""
    todo = "name target/release of a tree in which `make build` has run, the PREFIX of a `make install`, or the file itself"
    file = next((given / name for name in inside if (given / name).is_file()), None) if given.is_dir() else given
    if file is None or not file.is_file():
        looked = f": it has none of {', '.join(inside)}" if given.is_dir() else ""
        raise NoBuild(f"{given} is not a build of Weft{looked}; {todo}")
    file = file.resolve()
    try:
        done = subprocess.run(probe(file), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                              check=False)
    except OSError as error:
        raise NoBuild(f"{file} does not run ({error}); {todo}") from error
    if done.returncode or "ERROR: ld.so" in done.stdout:
        raise NoBuild(f"{file} does not run: {' '.join(done.stdout.split())}; {todo}")
    return file


def describe(file, given):
    """What a record says of a build."""
    def git(*words):
        done = subprocess.run(["git", "-C", file.parent, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=False)
        return None if done.returncode else done.stdout.strip()
    head = git("rev-parse", "--short=12", "HEAD")
    revision = f"{head}-dirty" if head and git("status", "--porcelain", "--untracked-files=no") else head
    built = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.timezone.utc)
    return {"path": str(given), "revision": revision, "built": built.strftime("%Y-%m-%dT%H:%M:%SZ")}
