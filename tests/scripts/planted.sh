#!/bin/sh
# planted.sh valgrind|sanitizer PROGRAM FAULT
# Passes if a checked run of one planted fault fails and names the fault's place.
set -u

scripts=$(dirname -- "$0")
output=$("$scripts/checked.sh" "$1" "$2" --jobs 1 --filter "planted/$3" 2>&1)
status=$?

if [ "$status" -eq 0 ]; then
    echo "a planted fault passed: $3"
elif ! printf '%s\n' "$output" | grep -q "planted.c:"; then
    echo "a planted fault failed, but no report names it: $3"
else
    exit 0
fi
printf '%s\n' "$output"
exit 1
