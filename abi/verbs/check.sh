#!/usr/bin/env bash
# Builds the C face into a folder and tests what was built. The last line is `N passed, N failed, N skipped`.
#
#   abi/verbs/check.sh TARGET      TARGET is cargo's target folder
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: abi/verbs/check.sh TARGET}/release
"$here/build.sh" "$out"
exec "$here/tests/run.sh" "$out"
