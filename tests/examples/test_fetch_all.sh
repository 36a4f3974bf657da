#!/usr/bin/env bash
# needs: fibers. fetch_all: many at a time and no more, each with its deadline, tried again if that may help;
# from a server that misbehaves in every way.
set -euo pipefail
source "$(dirname -- "$0")/lib.sh"
fetch_all=$build/examples/fetch_all
[ -x "$fetch_all" ] || skip "this build has no fetch_all"

cat >"$work/python/upstream.py" <<'END'
import os, socket, struct, threading, time

tries, now, most, lock = {}, 0, 0, threading.Lock()

def answer(body, status="200 OK", fields="", version="1.1"):
    return (f"HTTP/{version} {status}\r\nContent-Length: {len(body)}\r\n{fields}\r\n{body}").encode()

def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

def until_end(s):
    try:
        while s.recv(65536):
            pass
    except ConnectionResetError:
        pass

def respond(s, path):
    global now, most
    what = path.split("/")[1]
    with lock:
        tries[path] = tries.get(path, 0) + 1
        count = tries[path]
    if what == "ok":
        s.sendall(answer("hello"))
    elif what == "none":
        s.sendall(answer("gone", "404 Not Found"))
    elif what == "pieces":
        s.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        for byte in b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n":
            s.sendall(bytes([byte]))
    elif what == "old":
        s.sendall(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")
    elif what == "bare":
        s.sendall(answer(path, "200 OK"))
    elif what == "flaky": # goes wrong in three ways, and then well
        if count == 1:
            reset(s)
        elif count == 2:
            s.sendall(answer("later", "503 Service Unavailable"))
        elif count == 3:
            s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        else:
            s.sendall(answer("at last"))
    elif what == "once": # never answers the first time
        if count == 1:
            until_end(s)
        else:
            s.sendall(answer("now"))
    elif what == "silent":
        until_end(s)
    elif what == "drip":
        s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            s.sendall(b"x")
            time.sleep(0.02)
    elif what == "garbage":
        s.sendall(b"\x16\x03\x01 what is this\r\n\r\n")
        until_end(s)
    elif what == "endless":
        s.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            s.sendall(b"x" * 65536)
    elif what == "busy": # holds its place until others have come, or a while has passed
        with lock:
            now += 1
            most = max(most, now)
        for _ in range(50):
            if now >= 4:
                break
            time.sleep(0.02)
        with lock:
            now -= 1
        s.sendall(answer("done"))
    elif what == "tries":
        s.sendall(answer("x" * tries.get("/" + path.split("/", 2)[2], 0)))
    elif what == "most":
        s.sendall(answer("x" * most))
    else:
        s.sendall(answer(path))

def serve(s):
    try:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = s.recv(4096)
            if not piece:
                return
            head += piece
        respond(s, head.decode().split()[1])
    except OSError:
        pass
    finally:
        s.close()

listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
END
mkfifo "$work/port"
python3 "$work/python/upstream.py" >"$work/port" 2>>"$work/stderr" &
children[$!]=1
read -r -t 30 port <"$work/port"
at=http://127.0.0.1:$port

# run EXPECTED_STATUS ARGUMENT...: what it says goes to $work/said, a line for each URL, in order.
run() {
    local expected=$1 status=0
    shift
    timeout 60 "$fetch_all" --pause-ms 5 "$@" >"$work/said" 2>"$work/told" || status=$?
    [ "$status" -eq "$expected" ] || fail "status $status for $*: $(cat "$work/said" "$work/told")"
}
says() { # says PATTERN...: one for each line
    local pattern line=0
    for pattern; do
        line=$((line + 1))
        sed -n "${line}p" "$work/said" | grep -E -- "$pattern" >/dev/null ||
            fail "line $line is no '$pattern': $(cat "$work/said" "$work/told")"
    done
    [ "$(wc -l <"$work/said")" -eq "$line" ] || fail "more lines: $(cat "$work/said")"
}
tries() { # tries COUNT PATH: how often the server has been asked for it
    run 0 "$at/tries$2"
    says "^200 +$1 bytes"
}

# ---- what goes well

run 0 "$at/ok" "$at/pieces" "$at/old" "$at/bare/a?b=c#d" "$at" "$at?q" "HTTP://127.0.0.1:$port/ok"
says '^200 +5 bytes  http' '^200 +5 bytes' '^200 +13 bytes' '^200 +11 bytes' '^200 +1 bytes' '^200 +3 bytes' '^200 +5 bytes'
run 0
says

# ---- what is tried again, and what isn't

run 0 "$at/flaky/1" "$at/ok" "$at/flaky/2"
says '^200 +7 bytes' '^200 +5 bytes' '^200 +7 bytes'
tries 4 /flaky/1
run 1 --retries 1 "$at/flaky/3"
says '^503 +5 bytes'
run 1 --retries 0 "$at/flaky/4"
says 'reset by peer \(1 attempts\)'
run 1 "$at/none" "$at/ok"
says '^404 +4 bytes' '^200'
tries 1 /none
run 0 --attempt-ms 300 "$at/once" "$at/ok"
says '^200 +3 bytes' '^200'
tries 2 /once

# ---- what is given up: each at its own time, the others are none the worse

run 1 --attempt-ms 200 --retries 1 --body-max 1000000 \
    "$at/silent" "$at/ok" "$at/drip" "$at/garbage" "$at/endless" "http://127.0.0.1:1/" \
    "https://127.0.0.1:$port/" "nonsense" "" "http://a:b@127.0.0.1/" "$at/ok"
says 'deadline has passed \(2 attempts\)' '^200' 'deadline has passed \(2 attempts\)' 'Bad message \(2 attempts\)' \
    'too large \(1 attempts\)' 'refused \(2 attempts\)' 'Invalid argument \(1 attempts\)' \
    'Invalid argument' 'Invalid argument' 'Invalid argument' '^200'

# A host so long that, counted in 16 bits, it is 127.0.0.1.
long=$(head -c 65536 /dev/zero | tr '\0' a)
run 1 --retries 0 "http://127.0.0.1$long" "http://127.0.0.1$long:$port/ok"
says '^--- Invalid argument' '^--- Invalid argument'

# What can't be told has not been done.
status=0
"$fetch_all" "$at/ok" >/dev/full 2>"$work/told" || status=$?
[ "$status" -eq 1 ] || fail "status $status with nowhere to write to"
grep -q 'cannot write: No space left' "$work/told" || fail "not told: $(cat "$work/told")"

# ---- so many at a time

mapfile -t many < <(seq -f "$at/busy/%g" 40)
run 0 --parallel 4 "${many[@]}"
[ "$(grep -c '^200 *4 bytes' "$work/said")" -eq 40 ] || fail "not all of the many: $(cat "$work/said")"
run 0 "$at/most"
says '^200 +4 bytes'

# ---- an end to all of it: by time, and by a signal

mapfile -t many < <(seq -f "$at/silent/%g" 40)
run 1 --parallel 4 --total-ms 300 "$at/ok" "${many[@]}"
head -n 1 "$work/said" | grep '^200' >/dev/null || fail "what was fetched is not told"
[ "$(grep -c '^--- not begun' "$work/said")" -eq 36 ] || fail "begun in spite: $(cat "$work/said")"
[ "$(grep -c 'cancelled (1 attempts)' "$work/said")" -eq 4 ] || fail "see $(cat "$work/said")"
grep -q 'deadline has passed' "$work/told" || fail "no reason: $(cat "$work/told")"

"$fetch_all" --parallel 1 "$at/ok" "$at/silent/signal" "$at/ok" >"$work/said" 2>"$work/told" &
pid=$!
children[$pid]=1
python <<'END'
from client import *
until(lambda: Client().get("/tries/silent/signal")[2] == b"x", "the silent one to be asked")
os.kill(int(os.environ["SERVER"]), signal.SIGINT)
END
status=0
wait "$pid" || status=$?
unset "children[$pid]"
[ "$status" -eq 1 ] || fail "status $status after SIGINT"
says '^200' 'cancelled \(1 attempts\)' '^--- not begun'
