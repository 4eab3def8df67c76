#!/usr/bin/env bash
# Shows that the models find what they are for: takes single lines out of the engine's files, in a copy, and asks for a
# failure each time. What was a bug once stands first.
#
#   tests/model/mutants.sh        the last line is `N passed, N failed`
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}/mutants
export LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-2}
passed=0 failed=0

# A copy of the model and of what it includes.
mkdir -p "$work/tests"
cp -r "$here" "$work/tests/model"
for folder in run/engine run/os proto; do
    mkdir -p "$work/$(dirname $folder)"
    cp -r "$root/$folder" "$work/$folder"
done
cp "$root/Cargo.lock" "$work/"
sed '/^members = \[/,/^\]/c members = ["tests/model", "run/os", "proto/iwarp", "proto/verbs"]' "$root/Cargo.toml" >"$work/Cargo.toml"

# mutant FILE SED WHAT: with the change some model has to fail.
mutant() {
    local file=$work/run/engine/src/$1
    cp "$root/run/engine/src/$1" "$file"
    sed -i -E "$2" "$file"
    if cmp -s "$root/run/engine/src/$1" "$file"; then
        echo "FAILED $3: the change no longer applies to $1"
        failed=$((failed + 1))
    elif ! (cd "$work" && cargo test --offline --quiet -p weft-model --no-run >"$work/log" 2>&1); then
        echo "FAILED $3: does not compile"
        tail -n 15 "$work/log"
        failed=$((failed + 1))
    else
        local status=0 found
        (cd "$work" && timeout 300 cargo test --offline --quiet -p weft-model) >"$work/log" 2>&1 || status=$?
        found=$(sed -n "s/^thread 'models::\([a-z_]*\)'.* panicked .*/\1/p" "$work/log" | sort -u | head -n 3 | paste -sd ' ')
        case $status in
        0) echo "FAILED $3: no model notices"; failed=$((failed + 1)) ;;
        124) echo "FAILED $3: the models do not end"; failed=$((failed + 1)) ;;
        *) echo "ok $3: found by $found"; passed=$((passed + 1)) ;;
        esac
    fi
    cp "$root/run/engine/src/$1" "$file"
}

mutant turns.rs '/if self.in_set.load/,/^            \}/d' \
    "a lead keeps a wake-up that was meant for the service thread"
mutant turns.rs '/if self.led.load\(Ordering::SeqCst\) && self.mode\(\) == Mode::Watched \{/,/^                    \}/d' \
    "the service thread keeps a wake-up that was meant for the lead"
mutant turns.rs 's/(if self.led.load\(Ordering::SeqCst\)) && self.mode\(\) == Mode::Watched/\1/' \
    "the service thread wakes itself as long as a lead is about to change the mode"
mutant turns.rs '/A lead that came since then/,/^        \}/d' \
    "the service thread goes back to the set beside a lead"
mutant turns.rs 's/if self.standby.load\(Ordering::SeqCst\) \|\| self.mode\(\) == Mode::Served/if self.mode() == Mode::Served/' \
    "a post waits while the service thread stands by"
mutant turns.rs '/^    pub\(crate\) fn leave/,/^    \}/{/if self.standby/,/^        \}/d}' \
    "a lead leaves and the service thread stands by"
mutant turns.rs 's/self.led.load\(Ordering::SeqCst\) && !place.has_deferred\(\)/self.led.load(Ordering::SeqCst)/' \
    "the service thread stands by over posts that wait"
mutant turns.rs '/fn (leave|stand_by)\(/,/^    \}/{/\.store/s/SeqCst/Release/;/\.load/s/SeqCst/Acquire/}' \
    "stand-by without a total order"
mutant channel.rs 's/let counted = !queue.served;/let counted = false;/' \
    "an event that is not counted"
mutant channel.rs '/engine.wake_lead\(\);/d' \
    "a sleeping lead is not told of another thread's event"
mutant channel.rs '/self.counter.take\(\);/d' \
    "a removed event stays counted"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
