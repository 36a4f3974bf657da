#!/bin/sh
# readme.sh DOCUMENT CC ARCHIVE INCLUDE LIB...: every C program in DOCUMENT compiles without a warning and
# links; in a build without fibers only those that use none.
set -eu

readme=$1 cc=$2 archive=$3 include=$4
shift 4
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

awk -v dir="$dir" '
    /^```c$/ { file = sprintf("%s/%d.c", dir, ++n); next }
    /^```/   { file = ""; next }
    file     { print > file }' "$readme"

built=0
for program in "$dir"/*.c; do
    if grep -q fiber_ "$program" && ! [ -e "$include/weft/fiber.h" ]; then
        continue
    fi
    "$cc" -std=c11 -O1 -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror -I"$include" "$program" \
        -o "$dir/program" "$archive" "$@"
    built=$((built + 1))
done
echo "$built programs"
[ "$built" -gt 0 ]
