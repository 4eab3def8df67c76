#!/bin/sh
# Runs every fuzz target for SECONDS (default 10), beginning with its committed corpus.
#
#   fuzz/run.sh [SECONDS] [TARGET...]
#   fuzz/run.sh --build                 only compiles them
#
# Needs a nightly compiler and a C++ compiler, not cargo-fuzz. Says so and ends well when they are missing. A crash
# leaves its input in fuzz/artifacts/TARGET and ends with a status other than 0; `cargo test` replays whatever is put
# into fuzz/corpus/TARGET. The inputs that reach something new are thrown away with the run; WEFT_FUZZ_FOUND=FOLDER
# keeps them there, by target, and a later run goes on from them. A run ends early, in order, when its target gets
# SIGUSR1.
set -eu
kept=${WEFT_FUZZ_FOUND:+$(realpath -m "$WEFT_FUZZ_FOUND")}
cd "$(dirname "$0")"

only_build=
if [ "${1:-}" = --build ]; then
    only_build=yes
    shift
fi
seconds=${1:-10}
[ $# -eq 0 ] || shift
host=$(rustc -vV | sed -n 's/^host: //p')
target_dir=${CARGO_TARGET_DIR:-$PWD/target}

if ! rustup run nightly rustc --version >/dev/null 2>&1; then
    echo "fuzz: SKIPPED, no nightly compiler (rustup toolchain install nightly)" >&2
    exit 0
fi
if ! command -v c++ >/dev/null 2>&1; then
    echo "fuzz: SKIPPED, no C++ compiler (apt-get install g++)" >&2
    exit 0
fi
[ $# -gt 0 ] || set -- $(sed -n 's/^name = "\(.*\)"$/\1/p' Cargo.toml | tail -n +2)

# What cargo-fuzz passes: coverage counters for the fuzzer, AddressSanitizer, and the cfg that makes every CRC right.
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address -Ccodegen-units=1"
export RUSTFLAGS

# With --target the flags do not reach build scripts.
cargo +nightly build --quiet --release --target "$host" --target-dir "$target_dir"
[ -z "$only_build" ] || exit 0

if [ -n "$kept" ]; then
    found=$kept
else
    found=$(mktemp -d)
    trap 'rm -rf "$found"' EXIT
fi
for target in "$@"; do
    mkdir -p "artifacts/$target" "corpus/$target" "$found/$target"
    echo "fuzz: $target for $seconds s"
    # New inputs go to the first folder; the committed corpus is only read.
    if ! "$target_dir/$host/release/$target" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=1024 \
        -artifact_prefix="artifacts/$target/" -print_final_stats=1 \
        "$found/$target" "corpus/$target" >"$found/$target.log" 2>&1; then
        cat "$found/$target.log" >&2
        echo "fuzz: $target FAILED, input in fuzz/artifacts/$target" >&2
        exit 1
    fi
    sed -n 's/^stat::number_of_executed_units: */fuzz: inputs tried: /p' "$found/$target.log"
    # Edges of the code reached, and the fuzzer's finer count of what was different.
    sed -n 's/.* cov: \([0-9]*\) ft: \([0-9]*\) .*/fuzz: edges covered: \1, features: \2/p' "$found/$target.log" | tail -n 1
done
