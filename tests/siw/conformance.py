"""The verbs conformance program (tests/verbs) on siw: both ends in the guest, from the guest's address to itself.

    tests/siw/conformance.py [--only REGEX] [--docs docs/interop.md]

Says what siw fails, skips and passes. A case that hangs the guest's kernel counts as failed, and the guest is started anew
behind it. Nothing here judges Weft: what differs between the two devices is what a reader wants to know.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import document
import kernel
from machine import GUEST, Link, Machine

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
from counts import Counts  # noqa: E402

VERBS = Path(__file__).parents[1] / "verbs"
HEADING = "## The conformance program on siw"
RESULT = re.compile(r"^(ok|FAIL|skip) ([^\s:]+):? ?(.*)$", re.MULTILINE)
HANGS = "the guest's kernel hangs"
# Cases of one command: as many names as one line to the guest's shell takes.
AT_ONCE = 25
# Seconds: what a case may take, in a machine that is emulated, and each thing that it waits for, of which many never
# come; and what a case that was killed may take to die.
LIMIT = 30.0
PATIENCE = 5.0
SILENCE = 60.0


class Guest:
    """A guest with siw in it, started anew when it hangs."""

    def __init__(self, link, cache, program):
        self.link, self.cache, self.program = link, cache, program
        self.machine = None

    def ready(self):
        if self.machine is None:
            self.machine = Machine(self.link, self.cache)
            self.machine.load_siw("stock")
            (self.machine.share / "verbs-conformance").write_bytes(self.program.read_bytes())
            (self.machine.share / "verbs-conformance").chmod(0o755)
        return self.machine

    def close(self):
        if self.machine:
            self.machine.close()
        self.machine = None

    def run(self, words):
        """The program's output, and whether the guest has to be given up: it says nothing for so long."""
        shell = self.ready().shells["client"]
        shell.start(f"/mnt/verbs-conformance -d siw0 -a {GUEST} --width 1 --limit {LIMIT:g} --patience {PATIENCE:g} {words}")
        said = -1
        while len(shell.received) > said:
            said = len(shell.received)
            if ended := shell.poll(SILENCE):
                return ended.output, False
        output = shell.received.decode(errors="replace").replace("\r", "")
        self.close()
        return output, True


def names(program):
    """Every case, in order."""
    said = subprocess.run([program, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return said.split()


def exactly(cases):
    return "--only '^(" + "|".join(re.escape(case).replace("'", ".") for case in cases) + ")$'"


def play(guest, cases):
    """The outcome of each case: `ok`, `FAIL` or `skip`, and why."""
    outcomes = {}
    waiting = list(cases)
    while waiting:
        group, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        output, hangs = guest.run(exactly(group))
        for outcome, name, why in RESULT.findall(output):
            outcomes[name] = (outcome, why)
        silent = [name for name in group if name not in outcomes]
        if hangs and silent:
            # They run one after another: it was the first that said nothing, and the others have not run.
            outcomes[silent[0]] = ("FAIL", HANGS)
            waiting[:0] = silent[1:]
        else:
            outcomes.update((name, ("FAIL", "nothing was said")) for name in silent)
        for name in group:
            if outcomes.get(name, ("",))[0] == "FAIL":
                print(f"siw: {name}: {outcomes[name][1]}", flush=True)
    return outcomes


def reason(why):
    """What a case said, without the line of C that said it and an errno that may be of another call."""
    return re.sub(r"^\w+\.c:\d+: |,? ?\(?errno \d+[,\s(].*$", "", why).replace("|", "\\|")


def section(outcomes):
    counts = Counter(outcome for outcome, _ in outcomes.values())
    alike = {}
    for name, (outcome, why) in outcomes.items():
        if outcome == "FAIL":
            alike.setdefault(reason(why), []).append(f"`{name}`")
    rows = [f"| {why} | {', '.join(names)} |" for why, names in alike.items()]
    return [HEADING, "", f"`tests/siw/conformance.py`: the cases of [tests/verbs](../tests/verbs/README.md) on Linux siw instead of Weft, both ends in the guest. "
            f"{counts['ok']} pass, {counts['skip']} are skipped because siw reports absent what they need, {counts['FAIL']} fail. A crash is the program's, in the "
            "C library that it calls. Most have one of three reasons: siw's answer to `ibv_query_qp` does not say the state, so that whatever waits for "
            "the error state fails; a wrong local key is a local QP operation error at a send and a general error at a receive; and a Read or Write that "
            "the target refuses is flushed like what stands behind it.", "", "| what the case says | cases |", "| --- | --- |", *rows, ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="REGEX", type=re.compile, help="only cases whose name matches")
    parser.add_argument("--docs", type=Path, help="the table of a whole run: its section is replaced")
    parser.add_argument("--cache", type=Path, default=kernel.cache_folder(), help="where the guest's kernel is kept")
    options = parser.parse_args()
    if options.docs and options.only:
        sys.exit("--docs does not go with --only: the section in the docs is of a whole run")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "verbs-conformance"
        subprocess.run([VERBS / "build.sh", program], check=True)
        cases = [name for name in names(program) if not options.only or options.only.search(name)]
        link = guest = None
        try:
            link = Link()
            guest = Guest(link, options.cache, program)
            outcomes = play(guest, cases)
        except kernel.Unavailable as trouble:
            sys.exit(f"siw cannot be had: {trouble}")
        finally:
            if guest:
                guest.close()
            if link:
                link.close()
    if options.docs:
        document.put(options.docs, "\n".join(section(outcomes)))
    counts = Counter(outcome for outcome, _ in outcomes.values())
    print(Counts(counts["ok"], counts["FAIL"], counts["skip"]))


if __name__ == "__main__":
    main()
