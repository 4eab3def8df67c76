#!/usr/bin/env bash
# The sockets conformance program in every build and every mode, in silence and in a storm of signals: some minutes.
#
#   tests/sockets/long.sh WEFT        WEFT: the built command
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
weft=${1:?usage: tests/sockets/long.sh WEFT}
exec "$here/run.py" --plain --hooks "$weft" --modes pass,gso,always,ddp-off,ddp,ddp-crc,ddp-plain,ddp-prefer --builds plain,fortified,sanitized --storm
