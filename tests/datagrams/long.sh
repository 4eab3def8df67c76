#!/usr/bin/env bash
# The datagram checker for as long as you like: runs of half a minute with random seeds, the offload at both ends, at
# the receiver and at the sender in turn, some at a time.
#
#   tests/datagrams/long.sh LIBRARY MINUTES [AT-A-TIME [RULE]]     LIBRARY: the built libweft_preload.so
#
# RULE is the offload: gso, or 'uoe prefer' for carriers, which need both ends; with one end everything stays plain.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
library=$(realpath "${1:?usage: tests/datagrams/long.sh LIBRARY MINUTES [AT-A-TIME [RULE]]}")
minutes=${2:?usage: tests/datagrams/long.sh LIBRARY MINUTES [AT-A-TIME [RULE]]}
at_a_time=${3:-1}
rule=${4:-gso}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cc -std=gnu11 -O2 -pthread -o "$folder/checker" "$here/checker.c" || exit 1

# under RULE COMMAND...: with the offload where RULE is not empty.
under() {
    if [ -n "$1" ]; then
        LD_PRELOAD=$library WEFT_UDP=$1 timeout 300 "${@:2}"
    else
        timeout 300 "${@:2}"
    fi
}

# rounds LANE: one run after the other, a line for each.
rounds() {
    local lane=$1 number=0 port receiver sender seed pid said tries
    while [ $SECONDS -lt $((minutes * 60)) ]; do
        number=$((number + 1))
        case $((number % 3)) in
            0) receiver=$rule sender=$rule ;;
            1) receiver=$rule sender='' ;;
            2) receiver='' sender=$rule ;;
        esac
        seed=$((RANDOM * 32768 + RANDOM))
        : >"$folder/$lane.received"
        under "$receiver" "$folder/checker" receive 0 "$seed" >"$folder/$lane.received" 2>&1 &
        pid=$!
        for ((tries = 0; tries < 400; tries++)); do
            port=$(sed -n 's/^port //p' "$folder/$lane.received")
            [ -z "$port" ] || break
            sleep 0.05
        done
        if said=$(under "$sender" "$folder/checker" send 127.0.0.1 "$port" "$seed" 30 2>&1) && wait "$pid"; then
            echo "ok seed $seed, receiver ${receiver:-plain}, sender ${sender:-plain}: $said"
        else
            kill "$pid" 2>/dev/null
            wait "$pid"
            echo "FAIL seed $seed, receiver ${receiver:-plain}, sender ${sender:-plain}: $said; $(cat "$folder/$lane.received")"
        fi
    done
}

for lane in $(seq "$at_a_time"); do
    rounds "$lane" &
done | tee "$folder/lines"
passed=$(grep -c '^ok' "$folder/lines")
failed=$(grep -c '^FAIL' "$folder/lines")
sed -n 's/.* sent \([0-9]*\) datagrams.*/\1/p' "$folder/lines" | awk '{ sum += $1 } END { print sum + 0, "datagrams" }'
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
