#!/usr/bin/env bash
# What every server's command line takes and refuses, and an environment that is not as it should be.
set -euo pipefail
source "$(dirname -- "$0")/lib.sh"

server=$build/examples/echo_promise
[ -x "$server" ] || skip "this build has no echo_promise"

# refuses STATUS TEXT ARGUMENT...
refuses() {
    local expected=$1 text=$2 status=0
    shift 2
    timeout 30 "$server" "$@" >"$work/said" 2>"$work/told" || status=$?
    [ "$status" -eq "$expected" ] || fail "status $status for '$*'"
    grep -qF -- "$text" "$work/told" || fail "for '$*' it said: $(cat "$work/told")"
    [ ! -s "$work/said" ] || fail "for '$*' it said: $(cat "$work/said")"
}

for port in '' -1 -0 +80 ' 80' '80 ' 0x50 65536 99999999999999999999 http; do
    refuses 2 '--port takes a number from 0 to 65535' --port "$port"
done
refuses 2 "requires an argument" --port
refuses 2 "unrecognized option" --nothing
refuses 2 "what is 'more'?" --port 0 more
for host in '' nowhere 999.1.1.1; do
    refuses 1 "'$host' is no address" --host "$host" --port 0
done

start echo_promise
refuses 1 "port $port of 127.0.0.1 is in use by another program" --port "$port"
stop

# Closed standard descriptors: no socket gets what is meant for the terminal.
"$server" --port 0 <&- >&- 2>&- &
pid=$!
children[$pid]=1
has_listener() {
    find "/proc/$pid/fd" -lname 'socket:*' | grep -q .
}
for _ in {1..300}; do
    ! has_listener || break
    sleep 0.1
done
has_listener || fail "it doesn't begin"
for fd in 0 1 2; do
    [ "$(readlink "/proc/$pid/fd/$fd")" = /dev/null ] || fail "descriptor $fd: $(readlink "/proc/$pid/fd/$fd")"
done
kill -TERM "$pid"
status=0
wait "$pid" || status=$?
unset "children[$pid]"
[ "$status" -eq 0 ] || [ "$status" -eq 143 ] || fail "status $status"
