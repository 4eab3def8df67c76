"""Two builds of Weft measured in turn: when there are pairs enough, and what their ratios say.

The same method as `weft bench --beside` (eval/bench/src/pairs.rs says why): the figure is the Hodges-Lehmann estimate of
the logarithms of the ratios within the pairs, its 95 % interval Wilcoxon's signed-rank one. Pairs go on until the
interval is within 2 % of the ratio or there are 30 of them; a row is slower when the interval lies below 0.98. Ratios
are turned so that above 1 this build is the better one, for times as for rates. The samples are in the bench's record.
"""

import datetime
import math
import statistics
import subprocess
from pathlib import Path

from record import cell_of, row_of

THIS, BESIDE = "this", "beside"
FEWEST = 6  # pairs from which on there is a 95 % interval
MOST = 30  # pairs
PRECISION = 0.02  # of the ratio
SLOWER_BELOW = 0.98
BEYOND_EACH_END = 0.025  # of all cases
COMMANDS = ("weft", "bin/weft")  # where a build's folder and an installation's prefix have the command
LIBRARIES = ("libweft_preload.so", "lib/weft/libweft_preload.so")  # and where they have the hooks
NO_FIGURE_PAIRS = 3  # pairs without a figure after which there will be none
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


def narrow(ratios, until=PRECISION):
    """Whether the ends of the interval are within this part of the ratio."""
    ratio, interval = estimate(ratios) or (None, None)
    return interval is not None and (interval[0] >= ratio * (1 - until) and interval[1] <= ratio * (1 + until))


def order(number):
    """The builds in the order in which pair `number`, counted from 1, has them."""
    return (THIS, BESIDE) if number % 2 else (BESIDE, THIS)


def verdict(ratios, until=PRECISION):
    """What the ratios say of this build."""
    ratio, interval = estimate(ratios) or (None, None)
    if ratio is None:
        return NO_FIGURE
    if interval is None:
        return TOO_FEW
    if interval[1] < SLOWER_BELOW:
        return SLOWER
    return NO_SLOWER if interval[0] >= SLOWER_BELOW or narrow(ratios, until) else TOO_WIDE


def key_of(run, row_id):
    """What a row is judged by, and whether more of it is better: rates end in "for a second"."""
    key = row_of(run, row_id)["metric"]
    return key, key.endswith("_s")


def ratios(run, row_id, stack):
    """The ratio of each pair of which both samples are good."""
    row = row_of(run, row_id)
    if row is None:
        return []
    key, more_is_better = key_of(run, row_id)
    mine, other = ({sample["repetition"]: sample["metrics"][key] for sample in (cell or {"samples": []})["samples"]
                    if sample.get("metrics", {}).get(key, 0) > 0}
                   for cell in (cell_of(row, stack, build) for build in (THIS, BESIDE)))
    return [mine[pair] / other[pair] if more_is_better else other[pair] / mine[pair]
            for pair in sorted(mine.keys() & other.keys())]


class TwoBuilds:
    """Two builds, by the files that `find` gives, measured in turn into a record. Pairs go on until the interval is within
    `until` of the ratio, at most `most` of them."""

    def __init__(self, record, files, given, until, most):
        self.record, self.files, self.until, self.most = record, files, until, most
        record.run["options"] |= {"precision": until, "repetitions": most}
        record.run["builds"] = [describe(name, files[name], given[name]) for name in (THIS, BESIDE)]

    def enough(self, taken, cells):
        """Whether `taken` pairs are. Looks after an even number only, so that each build has come first as often."""
        of_each = [ratios(self.record.run, row_id, stack) for row_id, stack in cells]
        if not any(of_each):
            return taken >= min(self.most, NO_FIGURE_PAIRS)
        return taken >= self.most or taken % 2 == 0 and all(narrow(one, self.until) for one in of_each)

    def take(self, cells, measure):
        """Calls `measure(file)` for both builds of pair after pair, until each of `cells`, pairs of a row's id and a
        stack, has enough of them. `measure` keeps its samples in the record."""
        taken = 0
        while not self.enough(taken, cells):
            taken += 1
            for build in order(taken):
                self.record.turn = (build, taken)
                try:
                    measure(self.files[build])
                finally:
                    self.record.turn = None
        for row_id, stack in cells:
            self.keep(row_id, stack)

    def keep(self, row_id, stack):
        """Writes down what decided."""
        found = ratios(self.record.run, row_id, stack)
        if found:
            ratio, interval = estimate(found)
            cell = cell_of(row_of(self.record.run, row_id), stack, THIS)
            cell["ratio"] = {"pairs": len(found), "ratio": ratio, "interval": interval}


def compared(run):
    """Row and stack of all that was measured with this build."""
    return [(row["id"], cell["stack"]) for row in run["rows"] for cell in row["cells"]
            if cell.get("build") == THIS and not cell["skipped"]]


def slower(run):
    """A line for each row that is slower, or that has no figure of both builds."""
    for row_id, stack in compared(run):
        said, (ratio, interval) = verdict_of(run, row_id, stack)
        if said == SLOWER:
            yield f"{row_id} {stack}: slower than the build beside it: {ratio:.3f} ({interval[0]:.3f} to {interval[1]:.3f})"
        elif said == NO_FIGURE:
            yield f"{row_id} {stack}: there is no pair with a figure of both builds"


def verdict_of(run, row_id, stack):
    found = ratios(run, row_id, stack)
    return verdict(found, run["options"]["precision"]), estimate(found) or (None, None)


def table(run):
    """The lines of a table of all rows; `weft bench report` has one with the medians."""
    yield from HEAD
    for row_id, stack in compared(run):
        said, (ratio, interval) = verdict_of(run, row_id, stack)
        figure = "-" if ratio is None else f"{ratio:.3f}"
        ends = "-" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
        yield f"| {row_id} | {stack} | {figure} | {ends} | {len(ratios(run, row_id, stack))} | {said} |"


HEAD = ("ratio: this build over the one beside it, within pairs; above 1 this build is the better one", "",
        "| row | stack | ratio | 95 % interval | pairs | verdict |", "| --- | --- | ---: | ---: | ---: | --- |")


def number_of_pairs(word):
    """A number of pairs, from a command line."""
    number = int(word)
    if number < 1:
        raise ValueError(word)
    return number


def part(word):
    """`2%` from a command line, as a part of one."""
    number = float(word.strip().removesuffix("%"))
    if not 0 < number < 100:
        raise ValueError(word)
    return number / 100


def options(parser, what):
    """Adds the options of two builds to a command line."""
    parser.add_argument("--beside", type=Path, metavar="PATH",
                        help=f"measure {what} of a second build in turn with the first: its folder (target/release), "
                             "the prefix it is installed under, or the file itself")
    parser.add_argument("--pairs", type=number_of_pairs, default=MOST, metavar="N",
                        help="pairs of a row at most, with --beside (%(default)s)")
    parser.add_argument("--until", type=part, default=PRECISION, metavar="PERCENT",
                        help="pairs go on until the 95 %% interval of the ratio is within this much of it, with --beside (2%%)")


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


def version_of(weft):
    """What a command says of itself; None for libraries, which cannot be asked."""
    if weft.name.endswith(".so"):
        return None
    said = subprocess.run([weft, "--version"], stdout=subprocess.PIPE, text=True, timeout=60, check=False).stdout
    return said.strip().removeprefix("weft ") or None


def describe(name, file, given):
    """What a record says of a build."""
    def git(*words):
        done = subprocess.run(["git", "-C", file.parent, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=False)
        return None if done.returncode else done.stdout.strip()
    head = git("rev-parse", "--short=12", "HEAD")
    revision = f"{head}-dirty" if head and git("status", "--porcelain", "--untracked-files=no") else head
    built = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.timezone.utc)
    return {"name": name, "path": str(given), "version": version_of(file), "revision": revision,
            "built": built.strftime("%Y-%m-%dT%H:%M:%SZ")}
