#!/bin/sh
# alone.sh 'KNOWN...' 'UNKNOWN...' COMPILER FLAG...
# Compiles sources that include one header each. Passes if each KNOWN header compiles and the
# compiler cannot find any UNKNOWN one; any other error is a failure either way.
set -eu

known=$1
unknown=$2
shift 2

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
case $* in
*-std=c++*) source=$directory/alone.cc ;;
*) source=$directory/alone.c ;;
esac
failed=0

for header in $known $unknown; do
    printf '#include <%s>\nint alone;\n' "$header" >"$source"
    found=compiles
    LC_ALL=C "$@" -fsyntax-only "$source" 2>"$directory/errors" || found='does not compile'
    if grep -qE "fatal error: '?$header'?[: ]" "$directory/errors"; then
        found='is unknown'
    fi

    expected=compiles
    case " $unknown " in
    *" $header "*) expected='is unknown' ;;
    esac
    if [ "$found" != "$expected" ]; then
        echo "<$header> $found, but it should be: $expected"
        cat "$directory/errors"
        failed=1
    fi
done
exit "$failed"
