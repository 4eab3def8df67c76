#!/usr/bin/env bash
# Shows that the models find what they are for: takes single lines out of the engine's files, in a copy, and asks for a
# failure each time. What was a bug once stands first.
#
#   tests/loom/mutants.sh         the last line is `N passed, N failed`
set -uo pipefail
# shellcheck source=../common/mutants.sh
. "$(dirname "$0")/../common/mutants.sh"
export LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-2}

try() { cargo test --offline --quiet -p weft-loom "$@"; }

mutant run/engine/src/progress/wakeups.rs '/^            if self.in_set.load/,/^            \}/d' \
    "a lead keeps a wake-up that was meant for the service thread"
mutant run/engine/src/progress/wakeups.rs '/if self.led.load\(Ordering::SeqCst\) && self.mode\(\) == Mode::Watched \{/,/^                    \}/d' \
    "the service thread keeps a wake-up that was meant for the lead"
mutant run/engine/src/progress/wakeups.rs 's/(if self.led.load\(Ordering::SeqCst\)) && self.mode\(\) == Mode::Watched/\1/' \
    "the service thread wakes itself as long as a lead is about to change the mode"
mutant run/engine/src/progress/wakeups.rs '/A lead that came since then/,/^        \}/d' \
    "the service thread goes back to the set beside a lead"
mutant run/engine/src/progress/wakeups.rs 's/if self.standby.load\(Ordering::SeqCst\) \|\| self.mode\(\) == Mode::Served/if self.mode() == Mode::Served/' \
    "a post waits while the service thread stands by"
mutant run/engine/src/progress/wakeups.rs '/^    pub\(crate\) fn leave/,/^    \}/{/if self.standby/,/^        \}/d}' \
    "a lead leaves and the service thread stands by"
mutant run/engine/src/progress/wakeups.rs 's/self.led.load\(Ordering::SeqCst\) && !place.has_deferred\(\)/self.led.load(Ordering::SeqCst)/' \
    "the service thread stands by over posts that wait"
mutant run/engine/src/progress/wakeups.rs '/fn (leave|stand_by)\(/,/^    \}/{/\.store/s/SeqCst/Release/;/\.load/s/SeqCst/Acquire/}' \
    "stand-by without a total order"
mutant run/engine/src/progress/wakeups.rs '/fn napped\(/,/^    \}/{/if self.in_set/,/^        \}/d}' \
    "a poller that naps keeps a wake-up that was meant for others"
mutant run/engine/src/channel.rs 's/let counted = !queue.served;/let counted = false;/' \
    "an event that is not counted"
mutant run/engine/src/channel.rs '/progress.wake_lead\(\);/d' \
    "a sleeping lead is not told of another thread's event"
mutant run/engine/src/channel.rs 's/^                continue;$//' \
    "a lead sleeps over an event that its own sending made"
mutant run/engine/src/channel.rs '/self.counter.take\(\);/d' \
    "a removed event stays counted"
RINGS=run/engine/src/carrier/same_host/protocol.rs
mutant $RINGS '/own.written.store/s/SeqCst/Relaxed/' \
    "octets are counted before they are there"
mutant $RINGS '/^    pub\(crate\) fn arm/,/^    \}/{/own.bell.store\(for_what/d;s/^(        if !sleeps \{)$/        own.bell.store(for_what, Ordering::SeqCst);\n\1/}' \
    "a bell is armed behind the look"
mutant $RINGS '/^    pub\(crate\) fn arm/,/^    \}/s/!\(for_what \& FOR_OCTETS != 0 \&\& octets \|\| /!(/' \
    "an end sleeps without looking for octets again"
mutant $RINGS '/^    pub\(crate\) fn arm/,/^    \}/s/ \|\| for_what \& FOR_ROOM != 0 \&\& room\)/)/' \
    "a writer sleeps without looking for room again"
mutant $RINGS 's/left <= self.size \/ 2 \&\& //;/^fn take_bell/,/^\}/s/for_what != 0/for_what == 4/' \
    "no bell is ever rung"
mutant run/engine/src/progress/silent.rs '/Ordering::SeqCst\) == 0 \{/s/self.sleepers.*== 0/true/' \
    "a member stands in the list beside a sleeper"
mutant run/engine/src/progress/silent.rs '/self.sleepers.fetch_add/d' \
    "a sleeper is not counted"

total
