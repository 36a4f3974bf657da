#!/bin/sh
# symbols.sh ARCHIVE SHARED_LIBRARY native|fcontext|lean
# Checks what the built libraries show to a linker.
set -u

archive=$1
shared=$2
kind=$3
failed=0

fail() { # fail SENTENCE LINES
    printf '%s:\n%s\n' "$1" "$2"
    failed=1
}

# The shared library exports the public names and nothing else; a double underscore marks a name
# that files of the library share among themselves.
exported=$(nm -D --defined-only "$shared" | awk '{ print $NF }' | sed 's/@.*//' | sort -u)
[ -n "$exported" ] || fail 'the shared library exports nothing' "$shared"
wrong=$(printf '%s\n' "$exported" | grep -vE '^(weft|fiber|promise|ring)_[^_]')
[ -z "$wrong" ] || fail 'exported, but no public name' "$wrong"

# In the archive hidden names are still the linker's to see: they must not collide with a program's.
global=$(nm -g --defined-only "$archive" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u)
[ -n "$global" ] || fail 'the archive defines nothing' "$archive"
wrong=$(printf '%s\n' "$global" | grep -vE '^(weft|fiber|promise|ring)_')
[ -z "$wrong" ] || fail 'global in the archive without a prefix of the library' "$wrong"

# A switched stack has no shadow stack, so no object may claim to work with one.
wrong=$(readelf -n "$archive" "$shared" 2>/dev/null | grep -E 'SHSTK|GCS')
[ -z "$wrong" ] || fail 'claims shadow-stack support' "$wrong"

# The stacks of a program that links weft stay without execute permission.
wrong=$(readelf -lW "$shared" | grep -E 'GNU_STACK.* RWE')
[ -z "$wrong" ] || fail 'asks for an executable stack' "$wrong"

# Only the fcontext switch needs Boost.
if [ "$kind" != fcontext ]; then
    wrong=$(readelf -dW "$shared" | grep -E 'NEEDED.*boost')
    [ -z "$wrong" ] || fail 'links Boost without a need' "$wrong"
fi

# A library without fibers has nothing of them.
if [ "$kind" = lean ]; then
    wrong=$(nm "$archive" "$shared" 2>/dev/null | grep -i fiber)
    [ -z "$wrong" ] || fail 'a library without fibers names them' "$wrong"
fi

exit "$failed"
