#!/usr/bin/env bash
# The verbs conformance program and libweft.so under AddressSanitizer: the C edge, where pointers come from programs.
#
#   tests/asan.sh [OPTION...]      options of the conformance program (tests/verbs/README.md), say a pattern of cases
#
# Needs a nightly compiler (-Zsanitizer) and gcc's libasan; where they are missing it says so and ends well. The library
# is built with debug assertions. The leak checker is off: it needs ptrace, and programs leave objects to the end of
# their process. The cases that fork are left out (why: below). The last line is `N passed, N failed, N skipped`; what
# the sanitizer finds fails the case it is found in.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

target=${CARGO_TARGET_DIR:-$PWD/target}/asan
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$target

if ! rustup run nightly rustc --version >/dev/null 2>&1; then
    echo "asan: SKIPPED, no nightly compiler (rustup toolchain install nightly)"
    exit 0
fi
runtime=$(gcc -print-file-name=libasan.so 2>/dev/null)
if ! [ -e "$runtime" ]; then
    echo "asan: SKIPPED, no libasan (apt-get install gcc)"
    exit 0
fi

# With --target the flags do not reach build scripts. A cdylib takes the sanitizer's functions from whoever loads it.
RUSTFLAGS="-Zsanitizer=address -Cforce-frame-pointers=yes" \
    cargo +nightly build --quiet --target "$host" --package weft-abi-verbs || exit 1
library=$target/$host/debug/libweft.so
if [ "$(nm -D --undefined-only "$library" | grep -c __asan_)" -eq 0 ]; then
    echo "asan: FAILED, $library is not instrumented"
    exit 1
fi
tests/verbs/build.sh "$target/verbs-conformance" -fsanitize=address -fno-omit-frame-pointer || exit 1

# Weft's own handler for bad addresses stays in charge of those it knows and passes the others on.
export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1:strict_string_checks=1:abort_on_error=0:exitcode=99
export UBSAN_OPTIONS=print_stacktrace=1
passed=0 failed=0 skipped=0

# A sanitizer that is not there finds nothing: the library is given eight octets for a structure of a hundred.
cat >"$target/probe.c" <<'END'
#include <infiniband/verbs.h>
#include <stdlib.h>
int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && *list ? ibv_open_device(*list) : NULL;
	return context ? ibv_query_device(context, malloc(8)) : 3;
}
END
gcc -fsanitize=address -o "$target/probe" "$target/probe.c" -libverbs || exit 1
said=$(env LD_PRELOAD="$runtime $library" "$target/probe" 2>&1)
if [[ $said == *heap-buffer-overflow* ]]; then
    passed=1
    echo "ok a write beyond a short structure is found"
else
    failed=1
    echo "FAIL a write beyond a short structure is not found"
fi

run() {
    local title=$1 log=$target/asan.log
    shift
    echo "--- $title"
    env LD_PRELOAD="$runtime $library" "$@" >"$log" 2>&1
    grep -E '^(FAIL|not ok) |ERROR: AddressSanitizer|SUMMARY: ' "$log"
    local counts
    counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
    if [ -z "$counts" ]; then
        tail -n 20 "$log"
        counts="0 passed, 1 failed, 0 skipped"
    fi
    echo "$title: $counts"
    read -r ok _ bad _ left _ <<<"$counts"
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + left))
}

verbs=tests/verbs
# A child of a process with threads hangs in gcc's runtime itself, which leaves the locks of its allocator as they were.
set -- --without '^fork' "$@"
run "face iwarp" env WEFT_FACE=iwarp "$target/verbs-conformance" --known $verbs/known-failures.txt "$@"
run "face infiniband, by GID" env WEFT_FACE=infiniband "$target/verbs-conformance" --by gid \
    --known $verbs/known-failures-by-gid.txt "$@"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
