#!/bin/sh
# documents.sh SOURCE_DIRECTORY: README.md and docs/ are about the library that there is. What they call
# weft_..., fiber_..., promise_... or ring_... (in capitals, too) exists; links lead somewhere; each public
# header stands in docs/guide.md, and each page in README.md.
set -eu

cd "$1"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0

fault() {
    echo "$*"
    failed=1
}

# Names that begin with a prefix of the library and are no part of a path.
names() {
    grep -ohP '(?<![\w/])(weft|fiber|promise|ring|WEFT|FIBER|PROMISE|RING)_\w*(?![\w/])' "$@" | sort -u
}

without_comments() {
    awk '{ text = text $0 "\n" }
        END {
            while ((at = index(text, "/*")) > 0) {
                printf "%s ", substr(text, 1, at - 1)
                text = substr(text, at + 2)
                text = substr(text, index(text, "*/") + 2)
            }
            printf "%s", text
        }' "$@"
}

# The headers' comments don't count; build options and what the tests read from the environment do. A name
# with two underscores is one of the inside.
without_comments include/weft/*.h >"$dir/declared"
names "$dir/declared" include/weft/config.h.in CMakeLists.txt cmake/* tests/scripts/oracle.sh \
    >"$dir/public"
names -r --include='*.[ch]' src monad fiber uring | grep __ >"$dir/inside"
echo WEFT_ENGINE >>"$dir/public"

set -- README.md CHANGES.md benchmarks/README.md docs/*.md
names "$@" >"$dir/named"
[ "$(wc -l <"$dir/named")" -gt 300 ] || fault 'no names found'
while read -r name; do
    case $name in
    *_NAME) continue ;;                             # any of the operations
    *_) grep -q "^$name" "$dir/public" && continue ;; # any that begins so
    *__*) grep -qx "$name" "$dir/inside" && continue ;;
    *) grep -qx "$name" "$dir/public" && continue ;;
    esac
    fault "$name does not exist, but stands in: $(grep -lw "$name" "$@" | tr '\n' ' ')"
done <"$dir/named"

for page; do
    grep -oE '\]\([^)#:]+(#[^)]*)?\)' "$page" | sed 's/^](//; s/[)#].*//' >"$dir/links" || true
    while read -r link; do
        [ -e "$(dirname "$page")/$link" ] || fault "$page links to $link, which does not exist"
    done <"$dir/links"
done

for header in include/weft/*.h; do
    grep -q "weft/$(basename "$header")" docs/guide.md || fault "$header is not in docs/guide.md"
done
for page in docs/*.md; do
    grep -q "($page)" README.md || fault "$page is not in README.md"
done
exit "$failed"
