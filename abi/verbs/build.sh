#!/usr/bin/env bash
# Builds what programs load, and leaves it in a folder:
#
#   OUTDIR/libweft.so                  the engine with its C faces; for LD_PRELOAD
#   OUTDIR/weft-libs/libibverbs.so.1   the shells with the real libraries' names and symbol versions,
#   OUTDIR/weft-libs/librdmacm.so.1    which forward to libweft.so; for LD_LIBRARY_PATH
#
#   abi/verbs/build.sh [--debug] [--target=TRIPLE] OUTDIR
#
# With --target it builds for another machine, of which CC is the compiler.
#
# The shells find libweft.so in the folder above their own, unless it is loaded already. How they are used is told
# in abi/verbs/README.md.
set -euo pipefail

profile=release
target=
for option; do
    case $option in
    --debug) profile=debug ;;
    --target=*) target=${option#--target=} ;;
    *) break ;;
    esac
    shift
done
if [ $# -ne 1 ]; then
    echo 'usage: abi/verbs/build.sh [--debug] [--target=TRIPLE] OUTDIR' >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "$1/weft-libs"
out=$(cd "$1" && pwd)

# The compiler says what machine it builds for.
cc=${CC:-cc}
machine=$("$cc" -dumpmachine)
machine=${machine%%-*}
# A jump through the global offset table, behind the mark of a place that may be jumped to.
case $machine in
    x86_64) jump='endbr64; jmp *TARGET@GOTPCREL(%rip)' ;;
    aarch64) jump='hint 34; adrp x16, :got:TARGET; ldr x16, [x16, :got_lo12:TARGET]; br x16' ;;
    *)
        echo "build.sh: the shells' forwarding code is written for x86_64 and aarch64, and this is $machine" >&2
        exit 1
        ;;
esac

# --- libweft.so: cargo makes it, its link arguments are in build.rs

flags=(--package weft-abi-verbs)
if [ $profile = release ]; then flags+=(--release); fi
if [ -n "$target" ]; then flags+=("--target=$target"); fi
(cd "$root" && cargo build "${flags[@]}")
built=$(cd "$root" && cargo metadata --format-version 1 --no-deps |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/${target:+$target/}$profile/libweft.so
if ! [ "$built" -ef "$out/libweft.so" ]; then
    # Renamed into place: a running program keeps the file it has mapped.
    cp "$built" "$out/libweft.so.new"
    mv "$out/libweft.so.new" "$out/libweft.so"
fi

# --- the shells: from symbols.txt, a jump for each function and the version map

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# forwards PREFIX: assembler source for the symbols whose version begins with PREFIX
forwards() {
    awk -v prefix="$1" -v jump="$jump" '
        /^#/ || NF < 3 || index($2, prefix) != 1 { next }
        $3 == "data" {
            printf ".bss\n.globl %s\n.type %s, @object\n.size %s, 1\n%s: .zero 1\n", $1, $1, $1, $1
            next
        }
        {
            target = $3 == "served" ? "weft_" $1 : "weft_unserved_" $3
            printf ".text\n.p2align 4\n.globl %s\n.type %s, @function\n", $1, $1
            code = jump
            gsub("TARGET", target, code)
            printf "%s:\n\t%s\n.size %s, . - %s\n", $1, code, $1, $1
        }
        END {
            # By this mark libweft.so knows a shell when it looks for the installed library.
            print ".section .rodata\n.globl weft_shell\n.type weft_shell, @object\n.size weft_shell, 1"
            print "weft_shell: .byte 1"
            print ".section .note.GNU-stack, \"\", @progbits"
        }' "$here/symbols.txt"
}

# versions PREFIX: the version map of the same symbols; every version is defined, with or without symbols
versions() {
    awk -v prefix="$1" '
        /^#/ || NF < 3 || index($2, prefix) != 1 { next }
        !($2 in symbols) { order[++count] = $2 }
        { symbols[$2] = symbols[$2] "\t" $1 ";\n" }
        END {
            print "WEFT_SHELL {\nglobal:\n\tweft_shell;\nlocal:\n\t*;\n};"
            for (i = 1; i <= count; i++) printf "%s {\nglobal:\n%s};\n", order[i], symbols[order[i]]
        }' "$here/symbols.txt"
}

# shell SONAME PREFIX
shell() {
    forwards "$2" > "$work/$1.s"
    versions "$2" > "$work/$1.map"
    # shellcheck disable=SC2016 # $ORIGIN is the dynamic linker's
    "$cc" -shared -nostdlib -o "$out/weft-libs/$1.new" "$work/$1.s" "$out/libweft.so" \
        -Wl,-soname,"$1" -Wl,--version-script="$work/$1.map" -Wl,-rpath,'$ORIGIN/..' \
        -Wl,--enable-new-dtags -Wl,-z,nodelete -Wl,-z,now -Wl,-z,relro -Wl,-z,text -Wl,--no-undefined
    mv "$out/weft-libs/$1.new" "$out/weft-libs/$1"
}

shell libibverbs.so.1 IBVERBS
shell librdmacm.so.1 RDMACM
echo "built $out/libweft.so and the shells in $out/weft-libs"
