#!/bin/sh
# snippets.sh SOURCE_DIRECTORY CC ARCHIVE INCLUDE LIB...: every block of C in README.md and docs/ compiles
# without a warning. In a build without fibers only those that use none.
#
# A block with a main function is a program, and is linked too. Another one is a part of a file that
# includes weft.h and what is usual; or, if a comment says what is given, of a function that sees that (in
# the page as it is displayed the comment isn't there):
#
#     <!-- given: int fd, rc; void use(const void *, size_t); -->
set -eu

source=$1 cc=$2 archive=$3 include=$4
shift 4
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cd "$source"
awk -v dir="$dir" '
    FNR == 1 { given = file = ""; page = FILENAME; gsub(/[\/.]/, "_", page) }
    /^<!-- given: / { given = $0; sub(/^<!-- given: /, "", given); sub(/ *-->$/, "", given); next }
    /^```c$/ {
        file = sprintf("%s/%s_%d.c", dir, page, FNR)
        if (given)
            printf "%s\nint snippet(void);\nint snippet(void)\n{\n", given > file
        printf "#line %d \"%s\"\n", FNR + 1, FILENAME > file
        next
    }
    /^```/ && file { if (given) print "return 0;\n}" > file; close(file); file = "" }
    !file { given = "" }
    file { print > file }' README.md docs/*.md

built=0 skipped=0
for snippet in "$dir"/*.c; do
    if grep -q fiber_ "$snippet" && ! [ -e "$include/weft/fiber.h" ]; then
        skipped=$((skipped + 1))
        continue
    fi
    if grep -q '^int main(' "$snippet"; then
        set_up="-Wshadow -o $dir/program" libraries="$archive $*"
    else
        set_up='-fsyntax-only -Wno-unused -include weft/weft.h -include stdio.h -include netdb.h -include poll.h'
        libraries=
    fi
    # Both are lists of words.
    # shellcheck disable=SC2086
    "$cc" -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Wstrict-prototypes -Werror -I"$include" $set_up \
        "$snippet" $libraries
    built=$((built + 1))
done
echo "$built built, $skipped left out"
[ "$built" -gt 0 ]
