#!/usr/bin/env bash
# Shows that the simulation of datagrams over carriers finds what it is for: changes single lines in a copy, and asks
# for a failed seed each time.
#
#   tests/simulation/tests/uoe/mutants.sh        the last line is `N passed, N failed`
set -uo pipefail
# shellcheck source=../../../common/mutants.sh
. "$(dirname "$0")/../../../common/mutants.sh"

try() { cargo test --offline --quiet -p weft-simulation --test uoe "$@"; }
export UOE_SEEDS=120

uoe=proto/uoe/src

mutant $uoe/way.rs 's/if !core::mem::take\(&mut self.is_plain_under_way\)/if true/' \
    "no mark leaves behind the plain datagrams"
mutant $uoe/carrier/incoming.rs 's/behind.is_some_and\(\|\(_, until\)\| now < until\)/behind.is_some_and(|(_, until)| now > until)/' \
    "what comes behind a mark is not kept"
mutant $uoe/way.rs 's/if !self.was_sent_since/if true/' \
    "the way changes with datagrams under way on the channel"
mutant $uoe/carrier/outgoing.rs 's/^        channel.is_closing = true;/        self.channels.take(number);/' \
    "the number of a channel is free at once"
mutant $uoe/segments.rs 's/self.parsed.insert\(start\.\.end\)/self.parsed.insert(start..start)/' \
    "what was parsed is not remembered"
mutant $uoe/messages.rs 's/let key = \(channel, part\.message\);/let key = (channel, 0);/' \
    "parts of different datagrams are put together"
mutant $uoe/segments.rs 's/if self.controls.is_one_missing\(\)/if false/' \
    "a control message is forgiven"
mutant $uoe/controls.rs 's/self.given \+= 1;/self.given += 2;/' \
    "control messages are counted wrong"
mutant $uoe/queue.rs 's/self.dropped.late \+= 1;//' \
    "late datagrams are not counted"
mutant $uoe/queue.rs '0,/self.dropped.full \+= 1;/s/self.dropped.full \+= 1;//' \
    "datagrams without room are not counted"
mutant $uoe/ring.rs 's/self.wrap = self.tail;/self.wrap = at;/' \
    "the end of a ring is not where its last record ends"
mutant $uoe/gather.rs 's/self.offset \+= frame_len as u64;/self.offset += frame_len as u64 - 1;/' \
    "a header says another place in the stream"
mutant $uoe/carrier/incoming.rs 's/^        channel.source = from;/        channel.source = to;/' \
    "datagrams come from another address"

total
