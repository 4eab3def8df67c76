#!/usr/bin/env bash
# Shows that the simulation finds what it is for: takes single checks out of what stands between a peer and memory, in a
# copy, and asks for a failed seed each time.
#
#   tests/simulation/tests/system/mutants.sh        the last line is `N passed, N failed`
set -uo pipefail
# shellcheck source=../../../common/mutants.sh
. "$(dirname "$0")/../../../common/mutants.sh"

try() { cargo test --offline --quiet -p weft-simulation --test system "$@"; }

regions=proto/verbs/src/mr.rs windows=proto/verbs/src/mr/window.rs
qp=proto/verbs/src/qp

mutant $regions 's/end > base \+ size/end > base + size + 1/' \
    "an access may be one octet too long"
mutant $regions '/if region.pd != scope.pd/,/^        \}/{/fn check/!s/region.pd != scope.pd/false/}' \
    "a region serves queue pairs of other domains"
mutant $regions 's/if !region.access.contains\(access\)/if false/' \
    "a region's rights are not looked at"
mutant $regions 's/Slot::Region\(region\) => \(region.stag == stag\)/Slot::Region(region) => (slot_of(region.stag) == slot_of(stag))/' \
    "an STag of a region that is gone names the one in its place"
mutant $regions 's/\.filter\(\|r\| r\.valid\.load\(Ordering::Acquire\)\)//' \
    "an invalidated region goes on"
mutant $windows 's/Slot::Window\(window\) => \(window.stag == stag\)/Slot::Window(window) => (slot_of(window.stag) == slot_of(stag))/' \
    "a window's STag of before names what it is bound to now"
mutant $windows 's/\.filter\(\|_\| self\.valid\.load\(Ordering::Acquire\)\)//' \
    "an invalidated window goes on"
mutant $windows 's/ \|\| !bound.access.contains\(access\)//' \
    "a window's rights are not looked at"
mutant $windows 's/let foreign = .*;/let foreign = false;/' \
    "a window of one queue pair serves another"
mutant $windows 's/offset_in\(bound.iova, bound.len, addr/offset_in(bound.iova, bound.len + 8, addr/' \
    "an access may go past the end of a window"
mutant $windows 's/bound.offset \+ span.offset/span.offset/' \
    "a window opens the beginning of its region"
mutant $qp/responder.rs 's/let right = Access::REMOTE_READ;/let right = Access::NONE;/; s/access: Access::REMOTE_READ,/access: Access::NONE,/' \
    "a Read takes what may only be written"
mutant $qp/responder.rs 's/>= usize::from\(allowed\)/> usize::from(allowed)/' \
    "a Read Request more than the IRD is taken"
mutant $qp/responder.rs 's/self.responder.len\(\) \+ self.receiving.rnr_queue.requests\(\)/self.responder.len()/' \
    "Read Requests that are held do not count against the IRD"
mutant $qp/atomics.rs 's/>= usize::from\(ird\)/> usize::from(ird)/' \
    "an Atomic Request more than the IRD is taken"
mutant $qp/receive.rs 's/if self.access.contains\(Access::REMOTE_WRITE\)/if true/' \
    "the queue pair's own right to be written to is not looked at"
mutant $qp/reads.rs '/let end = u64::from\(read.received\)/,/^        if end/s/if len > 0 && to != .*/if false {/' \
    "a Read Response may have any TO"
mutant $qp/reads.rs 's/if end > u64::from\(read.len\) \|\| \(last && end != u64::from\(read.len\)\)/if false/' \
    "a Read Response may have any length"
mutant $qp/receive.rs 's/let right = Access::REMOTE_WRITE;/let right = Access::NONE;/' \
    "a Write goes where it may only read"
mutant $qp/atomics.rs 's/let right = Access::REMOTE_ATOMIC;/let right = Access::NONE;/' \
    "an atomic works on what may only be read or written"
mutant proto/verbs/src/scatter.rs 's/\(sge.length - skip\)/sge.length/' \
    "the rest of a message goes past the end of a scatter element"
mutant $qp/reads.rs 's/self.reads.front\(\).map/self.reads.back().map/' \
    "a Read Response goes where a later Read's belongs"
mutant $qp/untagged.rs 's/if segment.first/if segment.mo == 0/' \
    "each empty segment at the beginning of a message takes a receive"
mutant $qp/untagged.rs 's/host.invalidate_for_peer/host.invalidate/' \
    "a peer invalidates what was never opened to it"
mutant $qp/rnr_queue.rs 's/self.must_hold\(\) && self.ending.is_live\(\)/false/' \
    "what waits for a receive goes with its connection"
mutant $qp/timers.rs 's/self.timers.set\(Timer::Linger, host.now\(\) \+ LINGER\);//' \
    "a stream that ends waits for its peer without end"
mutant $qp/timers.rs 's/Timer::Linger => return Some\(Close::Linger\)/Timer::Linger => {}/' \
    "nobody closes a stream whose time is up"
mutant $qp/rnr.rs 's/Some\(until\) => self.timers.set\(Timer::Rnr, until\)/Some(_) => {}/' \
    "a message waits for its receive without end"
mutant $qp/rnr.rs 's/Ending::HalfClosed => self.rnr.wait/Ending::HalfClosed => FOR_EVER/' \
    "a message of a peer that has gone waits without end"
mutant $qp/ending.rs '/Ending::HalfClosed;/,/return false/s/self.follow_rnr\(host\);//' \
    "the wait is not bounded when the peer goes"
mutant $qp/delayed.rs 's/self.timers.set\(Timer::Acknowledgement, now \+ DELAY_MAX\);//' \
    "an acknowledgement waits for a post that never comes"
total
