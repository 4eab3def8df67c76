#!/usr/bin/env bash
# Builds the socket hooks and tests what was built. The last line is `N passed, N failed, N skipped`.
#
#   abi/preload/check.sh TARGET [SECONDS]      TARGET is cargo's target folder; SECONDS for each run of the checker
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=${1:?usage: abi/preload/check.sh TARGET [SECONDS]}
(cd "$here" && cargo build --release --package weft-abi-preload)
exec "$here/tests/run.sh" "$(cd "$target" && pwd)/release/libweft_preload.so" "${2-0.5}"
