#!/usr/bin/env bash
# needs: fibers. mixed: fibers and promises in one process, from the first request to the summary.
set -euo pipefail
source "$(dirname -- "$0")/lib.sh"

# ---- routes, and one upstream fetch for all who wait

start mixed --cache-ms 3600000 --upstream-ms 300 --slow-ms 3000
before=$(descriptors)

python <<'END'
from client import *

def stats(c):
    status, fields, body = c.get("/stats")
    check(status == 200)
    return dict(line.split(" ") for line in body.decode().splitlines())

# A stampede: everybody waits for the same fetch, and it is made once.
watcher = Client()
check(stats(watcher)["upstream_fetches"] == "0")
crowd = [Client() for _ in range(500)]
for c in crowd:
    c.send(request())
pages = [c.answer() for c in crowd]
check({status for status, fields, body in pages} == {200})
check(len({body for status, fields, body in pages}) == 1, "not all got the same value")
check(b"upstream: tick 1\n" in pages[0][2], pages[0][2])
seen = stats(watcher)
check(seen["upstream_fetches"] == "1", seen)
check(int(seen["upstream_waiters_max"]) > 1, seen)
check(int(seen["connections"]) == 501 and int(seen["fibers"]) > 501, seen)
check(int(seen["requests"]) == 502, seen)
check(seen["engine"] in ("uring", "epoll"), seen)
check(int(seen["passes"]) > 0 and float(seen["enters_per_request"]) >= 0, seen)

# Later ones get the cached value; other paths don't ask for it.
check(b"upstream: tick 1\n" in watcher.get()[2])
check(watcher.get("/nothing")[0] == 404)
check(watcher.get(method="DELETE")[0] == 405)
check(watcher.send(request("/stats", "HEAD")).answer(head=True)[0] == 200)
check(stats(watcher)["upstream_fetches"] == "1")

# The slow ones don't hold up the others, nor each other; what was pipelined ahead comes first.
slow = [Client().send(request() + request("/slow") + request()) for _ in range(100)]
for c in slow:
    check(c.answer()[0] == 200)
until(lambda: stats(watcher)["slow"] == "100", "the slow requests to begin")
check(watcher.get()[0] == 200)
check(all(c.silent() for c in slow), "a slow request was done before a fast one")
for c in slow:
    check(c.answer()[2].startswith(b"that took"))
    check(c.answer()[0] == 200)
check(stats(watcher)["slow"] == "0")

# Clients that go away while their answer is being made.
for c in [Client().send(request("/slow")) for _ in range(50)]:
    c.reset()
for c in [Client().send(request("/slow")) for _ in range(50)]:
    c.close()
until(lambda: stats(watcher)["connections"] == "601", "the slow connections to end")
END
alive
command -v wrk >/dev/null || skip "no wrk"
for path in / /stats; do
    timeout 60 wrk -t 2 -c 64 -d 1 --timeout 20 "http://127.0.0.1:$port$path" >"$work/wrk"
    ! grep -E 'Socket errors|Non-2xx' "$work/wrk" || fail "wrk met errors on $path"
done
same_descriptors "$before"
stop
grep -q '^upstream_fetches 1$' <<<"$said" || fail "the summary says: $said"

# ---- the cache grows old; an upstream that is too slow is an error for all who waited, not for ever

start mixed --cache-ms 1 --upstream-ms 0
python <<'END'
from client import *
c = Client()
until(lambda: b"upstream: tick 3\n" in c.get()[2], "a third fetch")
END
stop INT

start mixed --upstream-ms 2000 --fetch-ms 200
before=$(descriptors)
python <<'END'
from client import *
for _ in range(2):
    crowd = [Client().send(request()) for _ in range(50)]
    for c in crowd:
        status, fields, body = c.answer()
        check(status == 200 and b"upstream: not available" in body, body)
        c.close()
END
same_descriptors "$before"
stop

# ---- stopping: what was asked is answered, idle connections are closed, new ones refused

start mixed --slow-ms 2000
python <<'END'
from client import *
idle = Client()
check(idle.get("/stats")[0] == 200)
fresh = Client()
half = Client().send(b"GET /stats HTTP/1.1\r\n")
slow = [Client().send(request("/slow")) for _ in range(20)]
until(lambda: b"\nslow 20\n" in idle.get("/stats")[2], "the slow requests to begin")
os.kill(int(os.environ["SERVER"]), signal.SIGTERM)
check(idle.ends())
check(fresh.ends())
check(slow[0].silent())
try:
    Client()
    check(False, "new connections are still accepted")
except ConnectionRefusedError:
    pass
half.send(b"Host: a\r\n\r\n")
status, fields, body = half.answer()
check(status == 200 and fields["connection"] == "close" and half.ends())
for c in slow:
    status, fields, body = c.answer()
    check(status == 200 and fields["connection"] == "close" and c.ends())
END
ended "$pid"
[ "$status" -eq 0 ] || fail "status $status after SIGTERM"
grep -q '^requests [0-9]' <<<"$said" || fail "no summary: $said"

# A connection that has not sent all of its request is not waited for without end.
start mixed --drain-ms 200
python <<'END'
from client import *
c = Client().send(b"GET / HT")
slow = Client().send(request("/slow"))
until(lambda: b"\nslow 1\n" in Client().get("/stats")[2], "the slow request to begin")
os.kill(int(os.environ["SERVER"]), signal.SIGTERM)
check(c.ends())
END
ended "$pid"
[ "$status" -eq 0 ] || fail "status $status after the drain's deadline"

# A second signal ends it at once.
start mixed --slow-ms 3600000 --drain-ms 3600000
python <<'END'
from client import *
server = int(os.environ["SERVER"])
c = Client().send(request("/slow"))
watcher = Client()
until(lambda: b"\nslow 1\n" in watcher.get("/stats")[2], "the slow request to begin")
os.kill(server, signal.SIGTERM)
check(watcher.ends())
check(c.silent())
os.kill(server, signal.SIGTERM)
try:
    check(c.ends())
except ConnectionResetError:
    pass
END
ended "$pid"
[ "$status" -eq 1 ] || fail "status $status after a second signal"

# ---- a port in use is one sentence

start mixed
status=0
"$build/examples/mixed" --port "$port" >"$work/out" 2>"$work/err" || status=$?
[ "$status" -eq 1 ] && [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" -eq 1 ] &&
    grep -q 'in use' "$work/err" || fail "port in use: status $status, $(cat "$work/err")"
stop
