#!/bin/sh
# unwind.sh PROGRAM: gdb stops PROGRAM in a fiber, and must unwind to the fiber's bottom and end there
# by itself, not run on into garbage.
set -eu

command -v gdb >/dev/null || exit 77

trace=$(gdb -q -nx -batch -iex 'set debuginfod enabled off' -ex 'set disable-randomization off' \
    -ex 'break deepest' -ex run -ex 'backtrace 50' "$1" 2>&1) || true
echo "$trace"
case $trace in
*"ptrace: Operation not permitted"*) exit 77 ;;
esac
frames=$(echo "$trace" | sed -n 's/^#\([0-9]*\) .*/\1/p' | tail -n 1)
for name in deepest middle body fiber_main; do
    echo "$trace" | grep -q "^#[0-9]* .*$name" || { echo "unwind.sh: no frame of $name"; exit 1; }
done
# deepest, middle, body, fiber_main and where the context starts
if [ "$frames" -gt 5 ] || echo "$trace" | grep -q 'Backtrace stopped'; then
    echo 'unwind.sh: unwinding did not end at the bottom of the fiber'
    exit 1
fi
