#!/usr/bin/env bash
# The tests of the hooks on the built library.
#
#   abi/preload/tests/run.sh LIBRARY SECONDS
#
#   object        what the library exports and imports
#   header        abi/include/weft/sockets.h in C and C++
#   pass-through  programs under hooks without a rule: the same output, the same status
#   datagrams     tests/datagrams/checker.c between every pair of: plain, gathering when busy, gathering always
#   life          C programs of their own: fork, signals, exit, duplicates, threads
#   luck          (luck.sh) sandboxes, no /proc, no descriptors, other preloaded libraries, static,
#                 setuid and Go programs
#
# Closes with `N passed, N failed, N skipped`.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
library=$(realpath "${1:?usage: run.sh LIBRARY SECONDS}")
seconds=${2:?usage: run.sh LIBRARY SECONDS}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
seed=17000

ok() { passed=$((passed + 1)); }
bad() {
    failed=$((failed + 1))
    echo "not ok $1"
    shift
    [ $# -eq 0 ] || sed 's/^/    | /' "$@"
}

# under MODE COMMAND...
under() {
    local mode=$1
    shift
    case $mode in
    plain) "$@" ;;
    off) env LD_PRELOAD="$library" "$@" ;;
    busy) env WEFT_UDP=gso LD_PRELOAD="$library" "$@" ;;
    always) env WEFT_UDP=gso WEFT_UDP_BUSY_AFTER=0 LD_PRELOAD="$library" "$@" ;;
    tcp) env WEFT_DDP=prefer LD_PRELOAD="$library" "$@" ;;
    esac
}

# said_port FILE: the port that a receiver (tests/datagrams/checker.c) says it has, once it does
said_port() {
    local tries
    for ((tries = 0; tries < 400; tries++)); do
        sed -n 's/^port //p' "$1" | grep . && return
        sleep 0.05
    done
    return 1
}

# --- object

# Exactly what the list says, so that a hook that is lost or added is noticed.
grep -v '^#' "$here/../hooks.txt" | tr -s ' \n' '\n' | sed '/^$/d' | sort > "$work/listed"
nm -D --defined-only "$library" | awk '{print $3}' | sort > "$work/exported"
if diff "$work/listed" "$work/exported" > "$work/differs"; then ok; else bad "hooks.txt and the exports differ" "$work/differs"; fi
# Under every name that the C library has for the same function: by one that is not hooked a program would pass us.
libc=$(ldd "$(command -v bash)" | awk '/libc\.so/ { print $3 }')
nm -D --defined-only "$libc" | awk '$3 !~ /GLIBC_PRIVATE/ { sub(/@.*/, "", $3); print $1, $3 }' | sort -u > "$work/names"
awk 'NR == FNR { hooked[$1]; next } { names[$1] = names[$1] " " $2; if ($2 in hooked) ours[$1] }
     END { for (at in ours) { n = split(names[at], all, " "); for (i = 1; i <= n; i++) if (!(all[i] in hooked)) print all[i] } }' \
    "$work/exported" "$work/names" > "$work/aliases"
if [ -s "$work/aliases" ]; then bad "other names of hooked functions" "$work/aliases"; else ok; fi
nm -D --undefined-only "$library" | awk '{print $2}' | sed 's/@.*//' | sort > "$work/imported"
# What is hooked is never imported: our own calls would come back to us, or miss the program's.
if [ -z "$(comm -12 "$work/exported" "$work/imported")" ]; then
    ok
else
    bad "hooked and imported: $(comm -12 "$work/exported" "$work/imported" | tr '\n' ' ')"
fi

# --- header

# A program's own compiler may be strict, old, or for C++; twice included it is once there.
header=$root/abi/include
printf '#include <weft/sockets.h>\n#include <weft/sockets.h>\nstruct weft_ddp status;\nint mode = WEFT_DDP_BY_RULE;\n' > "$work/header.c"
# headed NAME COMPILER...
headed() {
    local name=$1
    shift
    if "$@" -Wall -Wextra -Werror -pedantic-errors -fsyntax-only -I "$header" "$work/header.c" > "$work/out" 2>&1; then
        ok
    else
        bad "weft/sockets.h does not compile as $name" "$work/out"
    fi
}
headed C89 cc -std=c89
headed C11 cc -std=c11
if command -v c++ > /dev/null; then
    headed C++98 c++ -std=c++98 -x c++
    headed C++20 c++ -std=c++20 -x c++
else
    skipped=$((skipped + 1))
    echo "skipped weft/sockets.h as C++: there is no C++ compiler"
fi

# --- pass-through

same() {
    local title=$1 mode status=0
    shift
    "$@" > "$work/plain" 2> "$work/plain.err" </dev/null || status=$?
    for mode in off busy tcp; do
        local hooked=0
        under $mode "$@" > "$work/hooked" 2> "$work/hooked.err" </dev/null || hooked=$?
        if [ $hooked -eq $status ] && cmp -s "$work/plain" "$work/hooked" && cmp -s "$work/plain.err" "$work/hooked.err"; then
            ok
        else
            bad "$title ($mode) differs" "$work/hooked" "$work/hooked.err"
        fi
    done
}
# shellcheck disable=SC2016 # the inner shell expands
same shell bash -c 'ls / | sort | head -3; (exit 3); echo $?; echo a | (read x; echo "$x"); exec 3>&1; echo b >&3; exit 7'
same "a pipe that breaks" bash -c 'yes | head -1'
same "no descriptors left" bash -c 'ulimit -n 4; exec 3</dev/null; true 4</dev/null; echo $?'
same python python3 -c '
import socket, subprocess, os
a, b = socket.socketpair(); a.send(b"x"); print(b.recv(9))
print(subprocess.run(["echo", "hi"], capture_output=True).stdout)
pid = os.fork()
if pid == 0: os._exit(5)
print(os.waitpid(pid, 0)[1])'

# --- the C programs

flags=(-std=gnu11 -O2 -g -Wall -Wextra -Werror -pthread)
for_cases=(-D_GNU_SOURCE -Wno-missing-field-initializers)
cc "${flags[@]}" -o "$work/checker" "$root/tests/datagrams/checker.c" || bad "checker.c does not compile"
cc "${flags[@]}" -o "$work/rate" "$root/tests/datagrams/rate.c" || bad "rate.c does not compile"
cc "${flags[@]}" "${for_cases[@]}" -c -o "$work/cases.o" "$root/tests/common/cases.c"

# compile NAME SOURCE: a program of cases
compile() {
    cc "${flags[@]}" "${for_cases[@]}" -o "$work/$1" "$2" "$work/cases.o" || bad "$2 does not compile"
}

# cases TITLE COMMAND...: a program of cases in every mode, the hooks between; its counts are added up
cases() {
    local title=$1 mode line
    shift
    for mode in plain off busy always tcp; do
        under $mode timeout 120 "$@" --quiet > "$work/out" 2>&1
        line=$(tail -n 1 "$work/out")
        if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]] && [ "${BASH_REMATCH[2]}" -eq 0 ]; then
            passed=$((passed + BASH_REMATCH[1])) skipped=$((skipped + BASH_REMATCH[3]))
            grep '^skipped ' "$work/out"
        else
            bad "$title ($mode)" "$work/out"
        fi
    done
}

compile life "$here/life.c"

for sender in plain busy always; do
    for receiver in plain busy always; do
        seed=$((seed + 10))
        : > "$work/receiver"
        under $receiver timeout 60 "$work/checker" receive 0 $seed > "$work/receiver" 2>&1 &
        port=$(said_port "$work/receiver") &&
            under $sender timeout 60 "$work/checker" send 127.0.0.1 "$port" $seed "$seconds" > "$work/sender" 2>&1
        sent=$?
        if wait $! && [ $sent -eq 0 ]; then
            ok
        else
            bad "datagrams from $sender to $receiver" "$work/sender" "$work/receiver"
        fi
    done
done

cases life "$work/life"

# --- who is served

# gathers TITLE YES|NO COMMAND...: whether datagrams of a sender that would gather each of them were gathered
gathers() {
    local title=$1 wanted=$2 found=no
    shift 2
    seed=$((seed + 10))
    : > "$work/receiver"
    timeout 60 "$work/checker" receive 0 $seed > "$work/receiver" 2>&1 &
    local port
    port=$(said_port "$work/receiver") &&
        env WEFT_LOG=info WEFT_UDP_BUSY_AFTER=0 LD_PRELOAD="$library" "$@" send 127.0.0.1 "$port" $seed 0.2 \
            > "$work/sender" 2>&1
    local sent=$?
    wait $! || sent=$?
    if grep -q 'datagrams left in' "$work/sender"; then found=yes; fi
    if [ $sent -eq 0 ] && [ $found = "$wanted" ]; then ok; else bad "$title: gathered: $found, status $sent" "$work/sender"; fi
}
gathers "a rule for the program's file" yes WEFT_UDP='gso program=checker' "$work/checker"
gathers "a rule for what it was started as" yes WEFT_UDP='gso program=other' \
    bash -c 'exec -a dir/other "$0" "$@"' "$work/checker"
gathers "a rule for its file, started as another" yes WEFT_UDP='gso program=checker' \
    bash -c 'exec -a dir/other "$0" "$@"' "$work/checker"
gathers "a rule for another program" no WEFT_UDP='gso program=other' "$work/checker"
gathers "off" no WEFT_OFF=1 WEFT_UDP=gso "$work/checker"
if [ "$(grep -c 'checker: Weft is off (WEFT_OFF)' "$work/sender")" -eq 1 ]; then ok; else bad "off is said once" "$work/sender"; fi
# shellcheck disable=SC2016 # the inner shell expands
WEFT_OFF=1 same "off" bash -c 'ls /proc/$$/task | wc -l; exec 3>&1; echo b >&3'

# --- bad luck

# shellcheck source=abi/preload/tests/luck.sh
. "$here/luck.sh"

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
