#!/usr/bin/env bash
# needs: fibers, io_uring. http_hello's system calls under load: far fewer than requests, and no I/O
# but the ring's. With the other engine there is nothing to test.
set -euo pipefail
source "$(dirname -- "$0")/lib.sh"

command -v strace >/dev/null || skip "no strace"
command -v wrk >/dev/null || skip "no wrk"
export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 # which needs ptrace for itself
start http_hello
[ -n "$(find "/proc/$pid/fd" -lname '*io_uring*')" ] || skip "io_uring is not to be had here"

# Attached after the start, so that only serving is counted; it ends when the server does.
strace -f -c -o "$work/calls" -p "$pid" 2>"$work/strace" &
tracer=$!
children[$tracer]=1
for _ in {1..100}; do
    ! grep -q 'TracerPid:[[:space:]]*[1-9]' "/proc/$pid/status" || break
    kill -0 "$tracer" 2>/dev/null || skip "strace cannot attach: $(cat "$work/strace")"
    sleep 0.1
done
timeout 60 wrk -t 1 -c 64 -d 2 --timeout 20 "http://127.0.0.1:$port/" >"$work/wrk"
! grep -E 'Socket errors|Non-2xx' "$work/wrk" || fail "wrk met errors"
requests=$(awk '/requests in/ { print $1 }' "$work/wrk")
stop
wait "$tracer" || true
unset "children[$tracer]"

calls=$(awk '$NF == "total" { print $4 }' "$work/calls")
echo "$requests requests, $calls system calls"
cat "$work/calls"
# Each pass of the loop takes one call, and serves everybody who has something to say.
[ "$requests" -gt 1000 ] || fail "too few requests to tell"
[ $((calls * 4)) -lt "$requests" ] || fail "$calls system calls for $requests requests"
# The signal that ends it, a look for a second one, and the summary, are the only ones that are not for
# connections.
if awk '$4 > 4 || $4 !~ /^[0-9]+$/' "$work/calls" |
    grep -E ' (p?readv?(64)?|p?writev?(64)?|recv(from|msg|mmsg)?|send(to|msg|mmsg)?|epoll_[a-z0-9]+|poll|ppoll|accept4?)$'; then
    fail "there is I/O beside the ring"
fi
