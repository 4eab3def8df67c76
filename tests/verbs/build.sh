#!/usr/bin/env bash
# Compiles the verbs conformance program against the system's headers and libraries.
#
#   tests/verbs/build.sh OUT [CFLAG...]      OUT: the program's path
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: tests/verbs/build.sh OUT [CFLAG...]}
shift
exec "${CC:-cc}" -std=gnu11 -O1 -g -Wall -Wextra -Werror -Wno-missing-field-initializers -D_GNU_SOURCE -pthread "$@" \
    -o "$out" "$here"/*.c "$here"/../common/cases.c -libverbs -lrdmacm
