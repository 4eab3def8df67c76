#!/usr/bin/env bash
# Shows that the simulation of placement looks: takes single steps out of what places octets ahead of order, in a copy,
# and asks for a failed seed each time.
#
#   tests/simulation/tests/inet/mutants.sh        the last line is `N passed, N failed`
set -uo pipefail
# shellcheck source=../../../common/mutants.sh
. "$(dirname "$0")/../../../common/mutants.sh"

try() { cargo test --offline --quiet -p weft-simulation --test inet "$@" placing::; }
# Few seeds hide an FPDU in a payload where a segment begins.
export SEEDS=3000

iwarp=proto/iwarp/src
verbs=proto/verbs/src

mutant $iwarp/ledger.rs 's/^        self\.placed\.insert\(at, placed\);/        if at % 5 > 0 { self.placed.insert(at, placed); }/' \
    "a ledger that forgets"
mutant $iwarp/ahead/mod.rs 's/self\.header\.last\(\) \&\& policy/false \&\& policy/' \
    "a last segment is placed early"
mutant $iwarp/ahead/mod.rs 's/self\.crc \&\& !crc_matches\(wire\)/false/' \
    "a guess counts as proven"
mutant $verbs/placing/sparing.rs 's/if self\.targets\.is_empty\(\)/if true/' \
    "an earlier Write goes over a later one"
mutant $verbs/placing/mod.rs 's/if !self\.targets\.is_free\(target\)/if false/' \
    "a later Write that came late goes over what is later still"
mutant $verbs/placing/mod.rs 's/if self\.front\.is_empty\(\) \&\& qp\.is_between_fpdus\(\)/if true/' \
    "a false start is delivered"
mutant $verbs/qp/queue_pair/placing.rs 's/\.filter\(\|stream\| stream\.send_is_open\(send\.msn\)\)/.filter(|_| true)/' \
    "a Send goes to another one's receive"
mutant $verbs/qp/queue_pair/placing.rs 's/if self\.attributes\.is_unreliable\(\)/if false/' \
    "what a queue pair of type UC loses is placed"
mutant $verbs/qp/reads.rs 's/fitting\.next\(\)\.is_none\(\)\.then_some\(found\)/Some((found.0, 0))/' \
    "a Read Response goes to the front of its Read"
mutant $verbs/placing/mod.rs 's/self\.position \+= placed\.envelope\.wire_len\(\) as u64;/self.position += placed.envelope.ulpdu_len() as u64;/' \
    "what was placed takes less of the stream than it did"
total
