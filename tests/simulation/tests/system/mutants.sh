#!/usr/bin/env bash
# Shows that the simulation finds what it is for: takes single checks out of what stands between a peer and memory, in a
# copy, and asks for a failed seed each time.
#
#   tests/simulation/tests/system/mutants.sh        the last line is `N passed, N failed`
set -uo pipefail
# shellcheck source=../../../common/mutants.sh
. "$(dirname "$0")/../../../common/mutants.sh"

try() { cargo test --offline --quiet -p weft-simulation --test system "$@"; }
# What takes several things at once (a peer that goes while a message waits) is in fewer seeds than `make test` runs.
export WEFT_SEEDS=3000

regions=proto/verbs/src/mr.rs windows=proto/verbs/src/mr/window.rs
qp=proto/verbs/src/qp

mutant $regions 's/end > base \+ size/end > base + size + 1/' \
    "an access may be one octet too long"
mutant $regions '/if region.pd != scope.pd/,/^        \}/{/fn check/!s/region.pd != scope.pd/false/}' \
    "a region serves queue pairs of other domains"
mutant $regions 's/if !region.access.contains\(access\)/if false/' \
    "a region's rights are not looked at"
mutant $regions 's/Slot::Region\(region\) => \(region.stag == stag\)/Slot::Region(region) => (self.place_of(region.stag) == self.place_of(stag))/' \
    "an STag of a region that is gone names the one in its place"
mutant $regions 's/\.filter\(\|r\| r\.valid\.load\(Ordering::Acquire\)\)//' \
    "an invalidated region goes on"
mutant $windows 's/Slot::Window\(window\) => \(window.stag == stag\)/Slot::Window(window) => (self.place_of(window.stag) == self.place_of(stag))/' \
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
mutant $qp/responder.rs 's/let outstanding = self.requests.len\(\) \+ held/let outstanding = self.requests.len()/' \
    "Read Requests that are held do not count against the IRD"
mutant $qp/responder.rs 's/>= usize::from\(ird\)/> usize::from(ird)/' \
    "an Atomic Request more than the IRD is taken"
mutant $qp/writes.rs 's/if attributes.access\(\).contains\(Access::REMOTE_WRITE\)/if true/' \
    "the queue pair's own right to be written to is not looked at"
mutant $qp/reads.rs '/let end = u64::from\(read.received\)/,/^        if end/s/if len > 0 && to != .*/if false {/' \
    "a Read Response may have any TO"
mutant $qp/reads.rs 's/if end > u64::from\(read.len\) \|\| \(last && end != u64::from\(read.len\)\)/if false/' \
    "a Read Response may have any length"
mutant $qp/writes.rs 's/let right = Access::REMOTE_WRITE;/let right = Access::NONE;/' \
    "a Write goes where it may only read"
mutant $qp/atomics.rs 's/let right = Access::REMOTE_ATOMIC;/let right = Access::NONE;/' \
    "an atomic works on what may only be read or written"
mutant proto/verbs/src/scatter.rs 's/\(sge.length - skip\)/sge.length/' \
    "the rest of a message goes past the end of a scatter element"
mutant $qp/reads.rs '/pub\(super\) fn sink/,/^    }/s/\.front\(\)/.back()/' \
    "a Read Response goes where a later Read's belongs"
mutant $qp/queue_pair/delivering.rs 's/if segment.first/if segment.mo == 0/' \
    "each empty segment at the beginning of a message takes a receive"
mutant $qp/receives.rs 's/host.invalidate_for_peer/host.invalidate/' \
    "a peer invalidates what was never opened to it"
mutant $qp/queue_pair/holding.rs 's/!self.rnr_queue.is_empty\(\) && self.lifecycle.is_live\(\)/false/' \
    "what waits for a receive goes with its connection"
mutant $qp/timers.rs 's/self.set\(Timer::Linger, now \+ LINGER\);//' \
    "a stream that ends waits for its peer without end"
mutant $qp/queue_pair/timeouts.rs 's/Timer::Linger => return Some\(Close::Linger\)/Timer::Linger => {}/' \
    "nobody closes a stream whose time is up"
mutant $qp/rnr.rs 's/_ => timers.set\(Timer::Rnr, until\)/_ => {}/' \
    "a message waits for its receive without end"
mutant $qp/rnr.rs 's/if peer_has_gone \{ self.wait \}/if peer_has_gone { FOR_EVER }/' \
    "a message of a peer that has gone waits without end"
mutant $qp/queue_pair/ending.rs '/half_close\(\);/,/return false/s/self.follow_rnr\(host\);//' \
    "the wait is not bounded when the peer goes"
mutant $qp/delayed.rs 's/timers.set\(Timer::Acknowledgement, now \+ DELAY_MAX\);//' \
    "an acknowledgement waits for a post that never comes"
mutant $qp/delayed.rs 's/DELAY_MAX: Duration = Duration::from_micros\(100\)/DELAY_MAX: Duration = Duration::from_micros(300)/' \
    "an acknowledgement waits for longer than is promised"
mutant $qp/acknowledgements.rs 's/!self.concern\(wqe.opcode\(\)\) \|\| wqe.sequence < self.acknowledged/true/' \
    "a Write is complete before the peer has placed it"
total
