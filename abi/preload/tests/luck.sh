# Bad luck: what a program or its machine does that leaves Weft less than it is used to. Read by run.sh.
# shellcheck shell=bash disable=SC2154 # work, here, root, library, flags: run.sh's

missing() {
    skipped=$((skipped + 1))
    echo "skipped $1: $2"
}

# A program's exit status in every mode.
luck() {
    local title=$1 mode status
    shift
    for mode in plain off busy always tcp; do
        status=0
        under $mode timeout 60 "$@" > "$work/out" 2>&1 || status=$?
        if [ $status -eq 0 ]; then ok; else bad "$title ($mode): status $status" "$work/out"; fi
    done
}

# The checker against itself, every way of sending, with something in front of both ends.
checked() {
    local title=$1 mode=$2
    shift 2
    seed=$((seed + 10))
    : > "$work/receiver"
    under "$mode" "$@" receive 0 $seed > "$work/receiver" 2>&1 &
    local receiver=$! port
    if port=$(said_port "$work/receiver") &&
        under "$mode" "$@" send 127.0.0.1 "$port" $seed 0.3 > "$work/sender" 2>&1 && wait $receiver; then
        ok
    else
        bad "$title" "$work/sender" "$work/receiver"
    fi
}

compile luck "$here/luck.c"
cc "${flags[@]}" -fPIC -shared -o "$work/other.so" "$here/other.c" || bad "other.c does not compile"

cases luck "$work/luck"
# What a program is told of at its end is not asked for in a sandbox.
WEFT_LOG=info cases "luck, told of" "$work/luck" --only sandbox

# A ring is noticed.
if WEFT_LOG=info under busy "$work/luck" --only io_uring > "$work/out" 2>&1 && ! grep -q '^skip' "$work/out"; then
    if grep -q 'uses io_uring' "$work/out"; then ok; else bad "io_uring is not noticed" "$work/out"; fi
fi

# Without /proc: in a mount namespace of its own.
if unshare --mount umount -l /proc 2>/dev/null; then
    cases "no /proc" unshare --mount sh -c 'umount -l /proc && exec "$@"' - "$work/luck" --only no-descriptors
    cases "no /proc, life" unshare --mount sh -c 'umount -l /proc && exec "$@"' - "$work/life"
else
    missing "no /proc" "it takes privilege"
fi

# Under a memory checker, which complains of what is not the program's, and hides the kernel's clock from it.
if command -v valgrind > /dev/null; then
    luck "valgrind" valgrind -q --error-exitcode=3 /bin/true
    for mode in off always tcp; do
        checked "valgrind, datagrams ($mode)" $mode timeout 60 valgrind -q --error-exitcode=3 "$work/checker"
    done
else
    missing "valgrind" "there is none"
fi

# Somebody else's library, before ours and behind it: both see every call.
for order in "$library:$work/other.so" "$work/other.so:$library"; do
    for gso in off gso; do
        status=0
        timeout 60 env WEFT_UDP=$gso LD_PRELOAD="$order" OTHER_SAYS="$work/said" "$work/luck" --only by-their-number \
            > "$work/out" 2>&1 || status=$?
        if [ $status -eq 0 ] && [ "$(cat "$work/said")" -gt 3 ]; then
            ok
        else
            bad "with another library ($order, $gso)" "$work/out" "$work/said"
        fi
    done
done
# One of the sanitizers' kind, with hundreds of names and its own idea of memory.
if asan=$(cc -print-file-name=libasan.so) && [ -e "$asan" ]; then
    if timeout 60 env WEFT_UDP=gso ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$(realpath "$asan"):$library" \
        "$work/luck" --only no-descriptors > "$work/out" 2>&1; then ok; else bad "behind libasan" "$work/out"; fi
else
    missing "behind libasan" "it is not installed"
fi

# Programs that no preloaded library reaches are unaffected, and that is said beforehand.
weft=$(dirname "$library")/weft
# foretold TITLE WORDS PROGRAM COMMAND...
foretold() {
    local title=$1 words=$2 program=$3 command
    shift 3
    [ -x "$weft" ] || { missing "$title is foretold" "weft is not built"; return; }
    for command in "$@"; do
        "$weft" "$command" --udp gso -- "$program" > "$work/out" 2>&1
        if grep -qi "$words" "$work/out"; then ok; else bad "weft $command: $title is not foretold" "$work/out"; fi
    done
}
if cc "${flags[@]}" -static -o "$work/checker-static" "$root/tests/datagrams/checker.c" 2> "$work/out"; then
    checked "a static program" always timeout 60 "$work/checker-static"
    foretold "a static program" static "$work/checker-static" run doctor
else
    missing "a static program" "there is no static C library"
fi
if [ "$(id -u)" -eq 0 ] && command -v setpriv > /dev/null; then
    cp "$work/checker" "$work/checker-setuid"
    chmod 4755 "$work/checker-setuid"
    chmod 755 "$work"
    if setpriv --reuid=65534 --clear-groups "$work/checker-setuid" > /dev/null 2>&1; [ $? -ne 126 ]; then
        checked "a setuid program" always timeout 60 setpriv --reuid=65534 --clear-groups "$work/checker-setuid"
        foretold "a setuid program" setuid "$work/checker-setuid" doctor
    else
        missing "a setuid program" "other users may not enter $work"
    fi
else
    missing "a setuid program" "it takes privilege"
fi
if command -v go > /dev/null; then
    mkdir "$work/go"
    cat > "$work/go/talk.go" <<'GO'
package main

import (
	"fmt"
	"net"
)

func main() {
	in, _ := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	out, _ := net.DialUDP("udp", nil, in.LocalAddr().(*net.UDPAddr))
	octets := make([]byte, 2000)
	for round := 0; round < 20; round++ {
		for i := 0; i < 50; i++ {
			out.Write([]byte(fmt.Sprint(i)))
		}
		for i := 0; i < 50; i++ {
			n, _ := in.Read(octets)
			if string(octets[:n]) != fmt.Sprint(i) {
				panic("differs")
			}
		}
	}
}
GO
    for cgo in 0 1; do
        if (cd "$work/go" && env CGO_ENABLED=$cgo GOFLAGS=-mod=mod GO111MODULE=off GOCACHE="$work/go/cache" \
            timeout 300 go build -o talk$cgo talk.go) > "$work/out" 2>&1; then
            luck "a Go program (cgo $cgo)" "$work/go/talk$cgo"
            foretold "a Go program (cgo $cgo)" 'go\b' "$work/go/talk$cgo" doctor
        else
            bad "talk.go does not compile (cgo $cgo)" "$work/out"
        fi
    done
else
    missing "a Go program" "there is no go"
fi
