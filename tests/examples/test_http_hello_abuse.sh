#!/usr/bin/env bash
# needs: fibers. http_hello under load and abuse: it goes on, and nothing is left behind.
set -euo pipefail
source "$(dirname -- "$0")/lib.sh"

[ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 1200 ] || skip "too few descriptors allowed"

load() { # load [WRK ARGUMENT...]: sets $requests
    local report
    report=$(timeout 60 wrk -t 1 -d 1 --timeout 20 "$@" "http://127.0.0.1:$port/")
    if grep -E 'Socket errors|Non-2xx' <<<"$report"; then
        fail "wrk met errors"
    fi
    requests=$(awk '/requests in/ { print $1 }' <<<"$report")
    [ "$requests" -gt 0 ] || fail "wrk got no answer"
}

start http_hello
before=$(descriptors)

command -v wrk >/dev/null || skip "no wrk"
load -c 1
load -c 64
load -c 16 -H 'Connection: close'
load -c 500

python <<'END'
from client import *

# A thousand connections that idle, some of them in the midst of a request, while others are served.
idle = [Client() for _ in range(1000)]
for c in idle[::3]:
    check(c.get()[0] == 200)
for c in idle[::5]:
    c.send(b"GET / HT")
for _ in range(200):
    check(Client().get()[0] == 200)
for i, c in enumerate(idle):
    c.send(b"TP/1.1\r\nHost: a\r\n\r\n" if i % 5 == 0 else request())
for c in idle:
    check(c.answer()[0] == 200)

# They go in every way there is.
for c in idle[0::4]:
    c.close()
for c in idle[1::4]:
    c.reset()
for c in idle[2::4]:
    c.send(request() * 100).reset()
for c in idle[3::4]:
    c.send(b"POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12").close()

# Connections reset before they are accepted, or right after.
for _ in range(300):
    Client().reset()
for _ in range(300):
    Client().send(request()).reset()

# Clients killed while they send, and while they don't read.
def upload(tell):
    c = Client().send(b"POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n")
    c.send(b"x" * 10000)
    tell()
    while True:
        c.send(b"x")
        time.sleep(0.001)
def flood(tell):
    c = Client(receive_buffer=4096).send(request() * 100)
    tell()
    while True:
        c.send(request() * 100)
victims(10, upload)
victims(10, flood)
check(Client().get()[0] == 200)
END

alive
load -c 64
same_descriptors "$before"
stop

# ---- no descriptors left
# With and without a limit of its own below what the system allows: the backlog holds the rest.

for limit in "" "--connections 1000"; do
    # shellcheck disable=SC2086
    DESCRIPTORS=40 start http_hello $limit
    before=$(descriptors)
    python <<'END'
from client import *

def ticks():
    with open(f"/proc/{os.environ['SERVER']}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])

many = [Client() for _ in range(80)]
for c in many[:20]:
    check(c.get()[0] == 200)
for c in many[20:]:
    c.send(request())
# A server that tries again and again uses all of a second; one that waits, hardly any of it.
used = ticks()
time.sleep(1)
used = ticks() - used
check(used < os.sysconf("SC_CLK_TCK") / 2, "it spins:", used, "ticks in a second")
check(many[-1].silent())
for c in many[:20]:
    check(c.get()[0] == 200)
for c in many[:20]:
    c.close()
for c in many[20:]:
    check(c.answer()[0] == 200)
    c.close()
END
    alive
    same_descriptors "$before"
    stop
done
[ "$(grep -c 'new connections wait until one is closed' "$work/stderr")" -eq 1 ] || fail "it is to be told once"
