#!/usr/bin/env bash
# Compiles the rsockets conformance program against the system's headers and libraries.
#
#   tests/rsockets/build.sh OUT [CFLAG...]      OUT: the program's path
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: tests/rsockets/build.sh OUT [CFLAG...]}
shift
exec "${CC:-cc}" -std=gnu11 -O1 -g -Wall -Wextra -Werror -Wno-missing-field-initializers -D_GNU_SOURCE -pthread "$@" \
    -o "$out" "$here"/*.c "$here"/../common/cases.c -lrdmacm -ldl
