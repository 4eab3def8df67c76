#!/usr/bin/env bash
# The tests of the C face on built objects: what the objects are, and C programs against the system's headers in every
# way of loading.
#
#   abi/verbs/tests/run.sh [-v] OUTDIR [PROGRAM...]      OUTDIR as build.sh left it
#
#   preload       LD_PRELOAD=libweft.so; the installed libraries are loaded beside it
#   replacement   LD_LIBRARY_PATH=weft-libs
#   both          both at once, as `weft run` does it
#
# Prints the cases (only those that fail, without -v) and closes with `N passed, N failed, N skipped`.
set -uo pipefail

verbose=
if [ "${1-}" = -v ]; then
    verbose=yes
    shift
fi
here=$(cd "$(dirname "$0")" && pwd)
out=$(cd "${1:?usage: run.sh [-v] OUTDIR [PROGRAM...]}" && pwd)
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
# Nobody waits for a program longer than this, seconds.
limit=120

# count TITLE STATUS: takes the counts of $work/output.txt, and shows what is worth seeing
count() {
    local title=$1 status=$2 line
    line=$(tail -1 "$work/output.txt")
    if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
        skipped=$((skipped + BASH_REMATCH[3]))
        if [ "$status" -ne 0 ] && [ "${BASH_REMATCH[2]}" -eq 0 ]; then
            failed=$((failed + 1))
            echo "not ok $title: exit status $status"
        fi
    else
        failed=$((failed + 1))
        echo "not ok $title: it did not finish (exit status $status); the last case: $line"
        status=1
    fi
    if [ -n "$verbose" ]; then
        sed "s/^/$title: /" "$work/output.txt"
    else
        grep -E '^(not ok|skip)' "$work/output.txt" | sed "s/^/$title: /"
    fi
    if [ "$status" -ne 0 ]; then
        tail -40 "$work/messages.txt" | sed "s/^/$title: | /"
    fi
}

# lines TITLE PATTERN WANTED: how many lines on the last program's standard error match
lines() {
    local found
    found=$(grep -c -- "$2" "$work/messages.txt")
    if [ "$found" -eq "$3" ]; then
        passed=$((passed + 1))
        [ -z "$verbose" ] || echo "ok $1"
    else
        failed=$((failed + 1))
        echo "not ok $1: $found lines match '$2', not $3"
    fi
}

# program MODE NAME [VARIABLE=VALUE...]
program() {
    local mode=$1 name=$2
    shift 2
    # A message without a receive ends the connection soon: some cases wait for that.
    local -a set=(TEST_MODE="$mode" WEFT_RECEIVE_WAIT_MS=100 "$@")
    case $mode in
    preload) set+=(LD_PRELOAD="$out/libweft.so") ;;
    replacement) set+=(LD_LIBRARY_PATH="$out/weft-libs") ;;
    both) set+=(LD_PRELOAD="$out/libweft.so" LD_LIBRARY_PATH="$out/weft-libs") ;;
    esac
    env "${set[@]}" timeout $limit "$work/$name" > "$work/output.txt" 2> "$work/messages.txt"
    count "$name ($mode)" $?
}

programs=("$@")
if [ ${#programs[@]} -eq 0 ]; then
    for source in "$here"/c/*.c; do programs+=("$(basename "$source" .c)"); done
    "$here/objects.sh" "$out" > "$work/output.txt" 2> "$work/messages.txt"
    count objects $?
fi

told='^weft: warn: process [0-9]* uses verbs objects of the process that it was forked from'
flags=(-std=gnu11 -O1 -g -Wall -Wextra -Werror -D_GNU_SOURCE -pthread)
for name in "${programs[@]}"; do
    libraries=(-libverbs -lrdmacm)
    # This one opens them itself.
    if [ "$name" = loading ]; then libraries=(); fi
    if ! cc "${flags[@]}" -o "$work/$name" "$here/c/$name.c" "${libraries[@]}" -ldl; then
        echo "not ok $name: it does not compile (packages libibverbs-dev, librdmacm-dev)"
        failed=$((failed + 1))
        continue
    fi
    for mode in preload replacement both; do
        if [ "$name" = off ]; then
            program $mode "$name" WEFT_OFF=1 WEFT_LOG=info
            lines "$name ($mode): that it is off is said once" 'Weft is off (WEFT_OFF)' 1
            continue
        fi
        program $mode "$name"
        if [ "$name" = device ]; then WEFT_FACE=iwarp program $mode "$name"; fi
        case $name in
        forked) lines "$name ($mode): each child that uses its parent's objects is told once" "$told" 22 ;;
        loading) lines "$name ($mode): refused rsockets are said once" 'rsockets (rsocket(7)) are not served: ' 1 ;;
        errors)
            lines "$name ($mode): a refused import is said once" 'ibv_import_device: a device that another process' 1
            lines "$name ($mode): refused port spaces are said once" 'rdma_create_id: the port spaces .* not served' 1
            ;;
        esac
    done
done

# A machine with a device of its own, in preload mode.
if [ $# -eq 0 ]; then
    cc "${flags[@]}" -shared -fPIC -o "$work/libforeign.so" "$here/foreign/library.c" &&
        cc "${flags[@]}" -o "$work/foreign" "$here/foreign/program.c" -libverbs -lrdmacm "$work/libforeign.so"
    for variable in UNUSED=1 WEFT_REAL_DEVICES=on WEFT_OFF=1; do
        env "$variable" LD_PRELOAD="$out/libweft.so $work/libforeign.so" timeout $limit "$work/foreign" \
            > "$work/output.txt" 2> "$work/messages.txt"
        count "foreign ($variable)" $?
    done
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
