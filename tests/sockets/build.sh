#!/usr/bin/env bash
# Compiles the sockets conformance program.
#
#   tests/sockets/build.sh OUT [CFLAG...]      OUT: the program's path
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: tests/sockets/build.sh OUT [CFLAG...]}
shift
exec "${CC:-cc}" -std=gnu11 -g -Wall -Wextra -Werror -Wno-missing-field-initializers -D_GNU_SOURCE -pthread -O1 "$@" \
    -o "$out" "$here"/*.c "$here"/../common/cases.c
