# shellcheck shell=bash
# Sourced by scripts that show that tests find what they are for: in a copy of the repository lines are changed, one
# change at a time, and a test has to fail.
#
#   try() { ... }                  compiles with --no-run as its argument, else runs; said before the first mutant
#   mutant FILE SED WHAT           FILE below the repository, changed by the sed -E script SED: some test has to notice
#   total                          the closing line; fails when a mutant was not noticed
#
# `try` runs in the copy, and its output says a Rust test's panic where one fails.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}/mutants
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
# Seconds that the tests may take with a change.
limit=300

git -C "$root" ls-files -z --cached --others --exclude-standard | (cd "$root" && xargs -0 cp --parents -t "$work" --)

miss() {
    echo "FAILED $1"
    failed=$((failed + 1))
}

mutant() {
    local file=$work/$1 log=$work/mutant.log status=0 found
    sed -i -E "$2" "$file"
    if cmp -s "$root/$1" "$file"; then
        miss "$3: the change no longer applies to $1"
    elif ! (cd "$work" && try --no-run) >"$log" 2>&1; then
        miss "$3: does not compile"
        tail -n 15 "$log"
    else
        (cd "$work" && export -f try && timeout "$limit" bash -c try) >"$log" 2>&1 || status=$?
        found=$(sed -n -E "s/^thread '([a-z_]*::)*([a-z_]*)'.* panicked .*/\2/p" "$log" | sort -u | head -n 3 | paste -sd ' ')
        case $status in
        0) miss "$3: no test notices" ;;
        124) miss "$3: the tests do not end" ;;
        *)
            echo "ok $3: found by $found"
            passed=$((passed + 1))
            ;;
        esac
    fi
    cp "$root/$1" "$file"
}

total() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}
