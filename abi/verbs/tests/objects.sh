#!/usr/bin/env bash
# Reads the built objects and says whether they are what programs bind to.
#
#   abi/verbs/tests/objects.sh OUTDIR      OUTDIR as build.sh left it
#
# Prints a line for each check and closes with `N passed, N failed, N skipped`.
set -uo pipefail
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
out=$(cd "${1:?usage: objects.sh OUTDIR}" && pwd)
symbols=$here/../symbols.txt
weft=$out/libweft.so
verbs=$out/weft-libs/libibverbs.so.1
cm=$out/weft-libs/librdmacm.so.1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

# Like grep -q, but it reads to the end: what writes into the pipe must not fail.
grep_all() { grep "$@" > "$work/grep"; }

# check NAME COMMAND...: passes if the command succeeds and prints nothing
check() {
    local name=$1 said
    shift
    if said=$("$@" 2>&1) && [ -z "$said" ]; then
        echo "ok $name"
        passed=$((passed + 1))
    else
        echo "not ok $name"
        printf '%s\n' "$said" | head -20 | sed 's/^/    /' >&2
        failed=$((failed + 1))
    fi
}

skip() {
    echo "skip $1: $2"
    skipped=$((skipped + 1))
}

# --- what the list wants

# of_kind KIND...: names of these kinds
of_kind() {
    awk -v kinds=" $* " '!/^#/ && NF == 3 && index(kinds, " " $3 " ") { print $1 }' "$symbols" | sort
}

# versioned PREFIX: NAME@@VERSION of one library
versioned() {
    awk -v prefix="$1" '!/^#/ && NF == 3 && index($2, prefix) == 1 { print $1 "@@" $2 }' "$symbols" | sort
}

# --- what the objects have

exports() { nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | sort; }
imports() { nm -D --undefined-only "$1" | awk '{ print $2 }' | sed 's/@.*//' | sort -u; }
dynamic() { readelf -dW "$1"; }

soname() { [ "$(dynamic "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')" = "$2" ]; }
stays_loaded() { dynamic "$1" | grep_all 'FLAGS_1.*NODELETE'; }
bound_at_start() { dynamic "$1" | grep_all 'FLAGS_1.*NOW'; }
no_text_relocations() { ! dynamic "$1" | grep_all TEXTREL; }
no_executable_stack() { readelf -lW "$1" | awk '/GNU_STACK/ { print $7 }' | grep_all -v E; }

# nothing DIFFERENT: prints lines that only one of two lists has
differ() { diff "$1" "$2" | grep '^[<>]'; [ "${PIPESTATUS[0]}" -eq 0 ]; }

for object in "$weft" "$verbs" "$cm"; do
    name=$(basename "$object")
    check "$name has its soname" soname "$object" "$name"
    check "$name is never unloaded" stays_loaded "$object"
    check "$name binds at start" bound_at_start "$object"
    check "$name has no text relocations" no_text_relocations "$object"
    check "$name has no executable stack" no_executable_stack "$object"
done

# --- libweft.so

exports "$weft" > "$work/weft"
{
    of_kind served
    of_kind served | sed 's/^/weft_/'
    printf 'weft_unserved_%s\n' errno null void
    echo weft_serves # src/one_engine.rs
    echo weft_version # src/version.rs
    sed -n 's/^ *\(Look\|Open\) fn \([a-z0-9_]*\)(.*/\2/p' "$here/../src/device_files.rs" # for the device's files
    printf '%s\n' opendir readdir readdir64 rewinddir telldir seekdir closedir scandir scandir64 # src/listing.rs
} | sort > "$work/weft.wanted"
check 'libweft.so exports what it implements, and nothing else' differ "$work/weft" "$work/weft.wanted"

no_versions() { ! readelf -VW "$weft" | grep_all 'Version definition'; }
check 'libweft.so has no symbol versions' no_versions

# Calls of our own must not be interposed: neither through names that programs or the installed libraries define ...
imports "$weft" > "$work/imports"
imported_from_list() { of_kind served errno null void data | comm -12 - "$work/imports"; }
check 'libweft.so imports no symbol of the list' imported_from_list

# ... nor through its own exports, which the dynamic linker may bind to somebody else's.
bound_to_exports() { readelf -rW "$weft" | awk '/JUMP_SLO|GLOB_DAT/ { print $5 }' | sed 's/@.*//' | sort -u | comm -12 - "$work/weft"; }
check 'libweft.so calls none of its exports through the linker' bound_to_exports

# Sockets are driven by raw system calls: these names are what a sockets face interposes. (The standard library brings
# read, write, writev, close, poll and fcntl of its own, for files and standard error.)
imported_sockets() {
    sort <<'LIST' | comm -12 - "$work/imports"
socket
socketpair
bind
listen
accept
accept4
connect
shutdown
send
sendto
sendmsg
sendmmsg
sendfile
recv
recvfrom
recvmsg
recvmmsg
readv
setsockopt
getsockopt
getsockname
getpeername
select
pselect
ppoll
epoll_create
epoll_create1
epoll_ctl
epoll_wait
epoll_pwait
eventfd
ioctl
dup
dup2
dup3
splice
LIST
}
check 'libweft.so imports no socket call' imported_sockets

# --- the shells

# shell_exports OBJECT PREFIX: differences between what it exports and what the list wants
shell_exports() {
    exports "$1" | grep -v '^weft_shell@@' > "$work/has"
    versioned "$2" > "$work/wants"
    differ "$work/has" "$work/wants"
}
check 'libibverbs.so.1 exports the list, with versions' shell_exports "$verbs" IBVERBS
check 'librdmacm.so.1 exports the list, with versions' shell_exports "$cm" RDMACM

needs_only_weft() { [ "$(dynamic "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')" = libweft.so ]; }
# shellcheck disable=SC2016 # $ORIGIN is the dynamic linker's
finds_weft() { dynamic "$1" | grep_all 'RUNPATH.*\[\$ORIGIN/\.\.\]'; }
# Every call goes to a name that programs cannot interpose.
imports_are_ours() { imports "$1" | grep -v '^weft_' ; true; }
for object in "$verbs" "$cm"; do
    name=$(basename "$object")
    check "$name needs libweft.so only" needs_only_weft "$object"
    check "$name finds libweft.so above its folder" finds_weft "$object"
    check "$name forwards to libweft.so only" imports_are_ours "$object"
done

is_object() { readelf -W --dyn-syms "$verbs" | grep_all ' 1 OBJECT .* verbs_allow_disassociate_destroy@@'; }
check 'verbs_allow_disassociate_destroy is one octet of data' is_object

# --- what is installed here: everything it imports from the two libraries is there

exports "$verbs" | sed 's/@@/@/' > "$work/offered"
exports "$cm" | sed 's/@@/@/' >> "$work/offered"
sort -o "$work/offered" "$work/offered"
not_offered() {
    nm -D --undefined-only "$1" 2> "$work/nm" | awk '{ print $2 }' | { grep -E '@(IBVERBS|RDMACM)_' || :; } | sort -u |
        comm -23 - "$work/offered"
}
found=
for program in rping ucmatose rdma_client rdma_server ibv_devices ibv_devinfo ibv_rc_pingpong ib_send_bw ib_send_lat \
    ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_atomic_bw fio qperf; do
    path=$(command -v "$program") || continue
    found=yes
    check "$program finds its symbols" not_offered "$path"
done
for library in libmlx5.so.1 libefa.so.1 libfabric.so.1 libuct_ib.so.0 libopen-pal.so.40; do
    path=/usr/lib/x86_64-linux-gnu/$library
    [ -e "$path" ] || continue
    found=yes
    check "$library finds its symbols" not_offered "$path"
done
[ -n "$found" ] || skip 'installed programs' 'none is installed'

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
