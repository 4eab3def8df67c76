#!/usr/bin/env bash
# The tests of the C edge on built objects: what the objects are, and C programs against the system's headers in every
# way of loading. What the device does is asked in tests/verbs.
#
#   abi/verbs/tests/run.sh [-v] OUTDIR [OPTION...]      OUTDIR as build.sh left it
#
#   preload       LD_PRELOAD=libweft.so; the installed libraries are loaded beside it
#   replacement   LD_LIBRARY_PATH=weft-libs
#   both          both at once, as `weft run` does it
#
#   edge      device, files of the device, forks, signals, threads (c/{device,nodes,forked,life}.c)
#   alloc     with an allocator of its own that counts
#   loading   linked with neither library
#   off       with WEFT_OFF=1
#   foreign   a machine with a device of its own, in preload mode
#
# Options are those of each program (tests/common/cases.h), say --only REGEX. Prints what failed or was left out (every
# case with -v) and closes with `N passed, N failed, N skipped`.
set -uo pipefail

quiet=--quiet
if [ "${1-}" = -v ]; then
    quiet=
    shift
fi
here=$(cd "$(dirname "$0")" && pwd)
tests=$here/../../../tests
out=$(cd "${1:?usage: run.sh [-v] OUTDIR [OPTION...]}" && pwd)
shift
options=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
# Nobody waits for a program longer than this, seconds.
limit=120

# count TITLE STATUS: takes the counts of $work/output.txt and shows the rest
count() {
    local title=$1 status=$2 line
    line=$(tail -n 1 "$work/output.txt")
    if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
        skipped=$((skipped + BASH_REMATCH[3]))
        sed -E "\$d; s/^flaky /flaky $title: /; t; /^skipped /b; s/^/$title: /" "$work/output.txt"
        [ "$status" -ne 0 ] || return 0
        if [ "${BASH_REMATCH[2]}" -eq 0 ]; then
            failed=$((failed + 1))
            echo "not ok $title: exit status $status"
        fi
    else
        failed=$((failed + 1))
        echo "not ok $title: it did not finish (exit status $status); the last line: $line"
    fi
    tail -n 40 "$work/messages.txt" | sed "s/^/$title: | /"
}

# program MODE NAME [VARIABLE=VALUE...] -- [OPTION...]
program() {
    local mode=$1 name=$2
    shift 2
    # A message without a receive ends the connection soon: a case waits for that.
    local -a set=(TEST_MODE="$mode" WEFT_RECEIVE_WAIT_MS=100)
    while [ "$1" != -- ]; do
        set+=("$1")
        shift
    done
    shift
    case $mode in
    preload) set+=(LD_PRELOAD="$out/libweft.so") ;;
    replacement) set+=(LD_LIBRARY_PATH="$out/weft-libs") ;;
    both) set+=(LD_PRELOAD="$out/libweft.so" LD_LIBRARY_PATH="$out/weft-libs") ;;
    esac
    env "${set[@]}" timeout $limit "$work/$name" --again $quiet "$@" "${options[@]}" > "$work/output.txt" 2> "$work/messages.txt"
    count "$name ($mode)" $?
}

flags=(-std=gnu11 -O1 -g -Wall -Wextra -Werror -Wno-missing-field-initializers -D_GNU_SOURCE -pthread)
# The harness, and the two connected ends of the conformance program.
(cd "$work" && cc "${flags[@]}" -c "$tests"/common/cases.c "$tests"/verbs/{env,pair,work,manager,steps}.c "$here/c/said.c")
ends=("$work"/{env,pair,work,manager,steps}.o -libverbs -lrdmacm)

# compile NAME SOURCE_OR_FLAG...
compile() {
    local name=$1
    shift
    if ! cc "${flags[@]}" -o "$work/$name" "$@" "$work/cases.o" "$work/said.o" -ldl; then
        echo "not ok $name: it does not compile (packages libibverbs-dev, librdmacm-dev)"
        failed=$((failed + 1))
        return 1
    fi
}

if [ ${#options[@]} -eq 0 ]; then
    "$here/objects.sh" "$out" > "$work/output.txt" 2> "$work/messages.txt"
    status=$?
    # Its checks that passed are no news.
    [ -z "$quiet" ] || sed -i '/^ok /d' "$work/output.txt"
    count objects $status
fi

compile edge "$here"/c/{main,device,nodes,forked,life}.c "${ends[@]}" &&
    for mode in preload replacement both; do
        program $mode edge --
        program $mode edge WEFT_FACE=iwarp -- --only '^(device|nodes)'
    done
compile alloc "$here/c/alloc.c" "${ends[@]}" &&
    for mode in preload replacement both; do program $mode alloc --; done
compile loading "$here/c/loading.c" &&
    for mode in preload replacement both; do program $mode loading --; done
compile off "$here/c/off.c" -libverbs -lrdmacm &&
    for mode in preload replacement both; do
        program $mode off WEFT_OFF=1 WEFT_LOG=info --
    done
cc "${flags[@]}" -shared -fPIC -o "$work/libforeign.so" "$here/foreign/library.c" &&
    compile foreign "$here/foreign/program.c" "${ends[@]}" "$work/libforeign.so" &&
    for variable in UNUSED=1 WEFT_REAL_DEVICES=on WEFT_OFF=1; do
        program foreign foreign "$variable" LD_PRELOAD="$out/libweft.so $work/libforeign.so" --
    done

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
