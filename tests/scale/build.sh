#!/usr/bin/env bash
# Compiles the crowd against the system's headers and libraries.
#
#   tests/scale/build.sh OUT [CFLAG...]      OUT: the program's path
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: tests/scale/build.sh OUT [CFLAG...]}
shift
exec "${CC:-cc}" -std=gnu11 -O2 -g -Wall -Wextra -Werror -Wno-missing-field-initializers -D_GNU_SOURCE -pthread "$@" \
    -o "$out" "$here"/*.c -libverbs -lrdmacm
