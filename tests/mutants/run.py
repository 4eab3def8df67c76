#!/usr/bin/env python3
"""Takes checks out of a crate, one at a time, and asks for a test that fails: a check that can be taken out unnoticed
is one that nobody keeps.

    tests/mutants/run.py CRATE...            those crates (weft-iwarp, weft-verbs, weft-engine); all without one
        --shard K/N     only every Nth mutant, from the Kth on
        --jobs N        so many mutants at once [2]
        --fresh         forget what earlier runs found out
        --list          only say what would be tried

The crate is compiled once, in a copy, with every mutant in it; an environment variable says which one is on. What each
test comes by is written down first, so that a mutant runs only the tests that reach it, the fastest first. Results are
kept under target/mutants for as long as crate and tests are the same, so that a run which was ended goes on.

Mutated are functions that can say no (`rust.py` has the rule); the conditions in them are taken as always true and as
never true, bounds are moved by one, and the answer of a check that is only called with `?` is ignored. `allowed` lists
those that no test needs to find, each with its reason. A survivor that is not in the list fails the run, and so does a
line of the list that is no survivor. The last line is `N passed, N failed`: found or allowed, and neither.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import rust

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get('CARGO_TARGET_DIR', ROOT / 'target')).resolve() / 'mutants'
# Seconds that the tests of a mutant may take at most: one that runs for longer has changed something that they see.
LIMIT = 60
# So many tests of those that reach a mutant are run together, the fastest first.
FEW = 8

# Of each crate its folder, and the files that are mutated: of the engine those that meet strangers.
CRATES = {
    'weft-iwarp': ('proto/iwarp', ['src/**/*.rs']),
    'weft-verbs': ('proto/verbs', ['src/**/*.rs']),
    'weft-engine': ('run/engine', [
        'src/throttle.rs', 'src/throttle/*.rs', 'src/refusals.rs', 'src/numbers.rs', 'src/modify/*.rs',
        'src/cm/accepting.rs', 'src/cm/half_open.rs', 'src/cm/handler.rs', 'src/cm/listen.rs',
        'src/cm/startup.rs', 'src/cm/turn.rs', 'src/bring_up/*.rs', 'src/ud/mod.rs']),
}
# Not in what is shipped, or tests.
NOT_MUTATED = {'fuzzing.rs', 'simulated.rs', 'tests.rs'}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('crates', nargs='*', metavar='CRATE')
    parser.add_argument('--shard', default='1/1')
    parser.add_argument('--jobs', type=int, default=2)
    parser.add_argument('--fresh', action='store_true')
    parser.add_argument('--list', action='store_true')
    args = parser.parse_args()
    shard, shards = (int(word) for word in args.shard.split('/'))
    names = args.crates or list(CRATES)
    unknown = [name for name in names if name not in CRATES]
    if unknown or not 1 <= shard <= shards:
        parser.error(f'no such crate: {unknown}' if unknown else f'no such shard: {args.shard}')
    if args.jobs < 1:
        parser.error(f'so many at once cannot be: {args.jobs}')
    passed = failed = 0
    for name in names:
        crate = Crate(name)
        if args.list:
            print('\n'.join(crate.mutants.values()))
            continue
        results = crate.run(shard, shards, args.jobs, args.fresh)
        good, bad = judge(name, crate, results, whole=shards == 1)
        passed, failed = passed + good, failed + bad
    if not args.list:
        print(f'{passed} passed, {failed} failed')
    sys.exit(1 if failed else 0)


class Crate:
    """A crate, and where it can be mutated."""

    def __init__(self, name):
        self.name = name
        self.folder, patterns = CRATES[name]
        files = {file for pattern in patterns for file in (ROOT / self.folder).glob(pattern)}
        self.sources = {}
        self.sites = {}
        for file in sorted(file for file in files if file.name not in NOT_MUTATED):
            path = str(file.relative_to(ROOT))
            self.sources[path] = file.read_text()
            self.sites[path] = rust.sites(path, self.sources[path])
        self.number()

    def number(self):
        """Gives each mutant its number."""
        self.mutants = {}
        for sites in self.sites.values():
            for site in sites:
                site.number = len(self.mutants)
                for mutant in site.names():
                    self.mutants[len(self.mutants)] = mutant

    def run(self, shard, shards, jobs, fresh):
        """What became of each mutant of the shard: the test that found it, or None."""
        say(f'{self.name}: {len(self.mutants)} mutants')
        with tempfile.TemporaryDirectory() as work:
            tests = self.build()
            kept = TARGET / f'{self.name}.{self.fingerprint()}.json'
            if fresh:
                kept.unlink(missing_ok=True)
            results = json.loads(kept.read_text()) if kept.exists() else {}
            plan = [number for number in self.mutants if number % shards == shard - 1]
            left = [number for number in plan if self.mutants[number] not in results]
            reach = self.reach(tests, Path(work)) if left else {}
            began = time.monotonic()
            with ThreadPoolExecutor(jobs) as pool:
                found = pool.map(lambda number: self.find(number, reach), left)
                for done, (number, test) in enumerate(zip(left, found)):
                    name = self.mutants[number]
                    results[name] = test
                    if test is None:
                        say(f'survives: {name}')
                    if done % 20 == 19 or done + 1 == len(left):
                        write(kept, json.dumps(results, indent=0))
                        say(f'{self.name}: {done + 1} of {len(left)} in {time.monotonic() - began:.0f} s')
        return {self.mutants[number]: results[self.mutants[number]] for number in plan}

    def fingerprint(self):
        """Changes with the crate, its tests and what is put into it."""
        digest = hashlib.sha256()
        files = list((ROOT / self.folder).rglob('*.rs')) + [HERE / 'rust.py', HERE / 'runtime.rs']
        for file in sorted(files):
            digest.update(file.read_bytes())
        return digest.hexdigest()[:16]

    def build(self):
        """Compiles the copy; what cannot be compiled as a mutant is left as it is. The test programs and their folders."""
        # Always in the same place, where nothing that is the same is written again: then it is not compiled again
        # either.
        tree = TARGET / self.name
        library = f'{self.folder}/src/lib.rs'
        given_up = 0
        while True:
            self.number()
            changed = {path: rust.instrumented(self.sources[path], sites) for path, sites in self.sites.items()}
            runtime = (HERE / 'runtime.rs').read_text().replace('HOW_MANY', str(len(self.mutants)))
            changed[library] = changed.get(library, (ROOT / library).read_text()) + runtime
            copy(tree, changed)
            status, messages = compiled(tree, self.name)
            if status == 0:
                break
            bad = self.not_compiled(messages)
            if not bad:
                print('\n'.join(m['message']['rendered'] for m in messages if m.get('reason') == 'compiler-message'))
                sys.exit(f'mutants: {self.name} does not compile')
            given_up += len(bad)
            for path in self.sites:
                self.sites[path] = [site for site in self.sites[path] if id(site) not in bad]
        if given_up:
            say(f'{self.name}: {given_up} places cannot be mutated; {len(self.mutants)} mutants are left')
        programs = [m for m in messages if m.get('reason') == 'compiler-artifact' and m['profile']['test']]
        return [(m['executable'], str(tree / self.folder)) for m in programs if m.get('executable')]

    def not_compiled(self, messages):
        """The sites on whose lines errors stand."""
        bad = set()
        for message in messages:
            if message.get('reason') != 'compiler-message' or message['message']['level'] != 'error':
                continue
            for span in message['message']['spans']:
                for path, sites in self.sites.items():
                    if not path.endswith(span['file_name']) and span['file_name'] != path:
                        continue
                    line = lambda at: self.sources[path].count('\n', 0, at) + 1
                    bad |= {id(site) for site in sites
                            if line(site.start) <= span['line_end'] and line(site.end) >= span['line_start']}
        return bad

    def reach(self, tests, work):
        """Which tests come by each mutant, the fastest first."""
        reach, count, began = {}, 0, time.monotonic()
        for program, folder in tests:
            command = [program, '--list', '--format', 'terse']
            listed = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            names = [line.rsplit(': ', 1)[0] for line in listed.stdout.splitlines() if line.endswith(': test')]
            for name in names:
                log = work / 'reached'
                log.unlink(missing_ok=True)
                reached = {'WEFT_MUTANTS_REACHED': str(log)}
                status, seconds = attempt(program, folder, [name], reached, 10 * LIMIT)
                if status != 0:
                    # Those with threads and sockets may fail on a machine that stood still: once more.
                    status, seconds = attempt(program, folder, [name], reached, 10 * LIMIT)
                if status != 0:
                    sys.exit(f'mutants: {name} of {program} fails without any mutant (status {status})')
                count += 1
                for line in (log.read_text().split() if log.exists() else ()):
                    reach.setdefault(int(line), []).append((seconds, program, folder, name))
        for tests in reach.values():
            tests.sort()
        say(f'{self.name}: {count} tests pass without a mutant ({time.monotonic() - began:.0f} s)')
        return reach

    def find(self, number, reach):
        """The test that finds a mutant, or None."""
        tests = self.reached_by(number, reach)
        until = time.monotonic() + LIMIT
        while tests:
            _, program, folder, _ = tests[0]
            few = [test for test in tests if test[1] == program][:FEW]
            tests = [test for test in tests if test not in few]
            names = [test[3] for test in few]
            # Most that do not end never would: twenty times the usual is long enough.
            usual = sum(test[0] for test in few)
            left = max(min(until - time.monotonic(), 5 + 20 * usual), 5)
            status, _ = attempt(program, folder, names, {'WEFT_MUTANT': str(number)}, left)
            if status != 0:
                return names[0] if len(names) == 1 else f'{names[0]} or {len(names) - 1} others'
        return None

    def reached_by(self, number, reach):
        """A site is noted by its first mutant, or by the one that moves its bound."""
        site = next(s for sites in self.sites.values() for s in sites if s.number <= number < s.number + len(s.ways))
        return reach.get(site.number, [])


def copy(tree, changed):
    """The repository as git lists it, with some files changed."""
    listed = subprocess.run(
        ['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], cwd=ROOT, check=True,
        capture_output=True)
    for path in listed.stdout.decode().split('\0'):
        if not path or not (ROOT / path).is_file():
            continue
        octets = changed[path].encode() if path in changed else (ROOT / path).read_bytes()
        there = tree / path
        if not there.is_file() or there.read_bytes() != octets:
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(octets)


def compiled(tree, name):
    environment = {**os.environ, 'CARGO_TARGET_DIR': str(TARGET / 'build')}
    build = subprocess.run(
        ['cargo', 'test', '--no-run', '--message-format=json', '--package', name, '--lib', '--tests'],
        cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return build.returncode, [json.loads(line) for line in build.stdout.splitlines() if line.startswith('{')]


def attempt(program, folder, names, environment, limit):
    """Exit status of single tests, and the seconds they took; 124 when they did not end."""
    began = time.monotonic()
    process = subprocess.Popen(
        [program, '--exact', *names], cwd=folder, env={**os.environ, **environment}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    try:
        status = process.wait(limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        status = 124
    return status, time.monotonic() - began


def allowed_survivors():
    """The list, by mutant."""
    found = {}
    for line in (HERE / 'allowed').read_text().splitlines():
        if line and not line.startswith('#'):
            mutant, reason = line.rsplit(' | ', 1)
            found[mutant] = reason
    return found


def judge(name, crate, results, whole):
    """How many are as they should be and how many are not; says which."""
    allowed = allowed_survivors()
    survivors = [mutant for mutant, found in results.items() if found is None]
    wrong = [f'FAILED no test finds: {mutant}' for mutant in survivors if mutant not in allowed]
    for mutant in allowed:
        if mutant in results and results[mutant] is not None:
            wrong.append(f'FAILED the list allows what {results[mutant]} finds: {mutant}')
        elif whole and mutant.startswith(crate.folder + '/') and mutant not in results:
            wrong.append(f'FAILED the list allows what is no mutant: {mutant}')
    found = len(results) - len(survivors)
    print('\n'.join(wrong) + '\n' * bool(wrong), end='')
    print(f'{name}: {len(results)} mutants, {found} found, {len(survivors)} left, '
          f'{sum(mutant in allowed for mutant in survivors)} of them with a reason')
    return len(results) - len([w for w in wrong if w.startswith('FAILED no')]), len(wrong)


def say(words):
    print(f'mutants: {words}', file=sys.stderr, flush=True)


def write(path, text):
    """All of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix('.part')
    part.write_text(text)
    part.replace(path)


if __name__ == '__main__':
    main()
