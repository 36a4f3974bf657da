#!/bin/sh
# sizes.sh SOURCE_DIRECTORY
# Passes if the size of each struct that a public header defines is asserted somewhere in the library: who
# changes it by mistake breaks programs built before.
set -eu
cd "$1"

asserted=$(grep -rhA3 --include='*.[ch]' -E '_Static_assert|static_assert' include src monad fiber uring |
    grep -oE 'sizeof\(struct [a-z_]+\)' | sort -u)
defined=$(sed -n 's/^struct \([a-z_]*\) {$/\1/p' include/weft/*.h)
[ -n "$defined" ]

failed=0
for name in $defined; do
    case $name in
    ring_own) continue ;; # a part of struct ring_op
    esac
    if ! echo "$asserted" | grep -qx "sizeof(struct $name)"; then
        echo "the size of struct $name is asserted nowhere"
        failed=1
    fi
done
exit "$failed"
