# shellcheck shell=bash disable=SC2015,SC2034,SC2119,SC2120
# echo.sh: what both echo servers must do. Source it with the build directory and the server's name.
set -euo pipefail
server=$2
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

start "$server"
before=$(descriptors)

python <<'END'
from client import *
import threading

# A word, bytes one by one, and the end.
c = Client().send(b"hello")
check(c.take(5) == b"hello")
for byte in b"one by one":
    c.send(bytes([byte]))
    check(c.take(1) == bytes([byte]))
c.half_close()
check(c.ends())

# More than all buffers between the two hold, sent while the answer is read.
data = os.urandom(4 << 20)
c = Client()
writer = threading.Thread(target=lambda: c.send(data).half_close())
writer.start()
check(c.take(len(data)) == data)
check(c.ends())
writer.join()

# What was sent before the half close comes back.
c = Client().send(b"x" * 30000).half_close()
check(c.take(30000) == b"x" * 30000)
check(c.ends())

# Many at a time; each gets its own bytes, in the reverse order too.
many = [Client() for _ in range(300)]
for i, c in enumerate(many):
    c.send(b"client %d" % i)
for i, c in reversed(list(enumerate(many))):
    check(c.take(len(b"client %d" % i)) == b"client %d" % i)
for c in many[::2]:
    c.reset()
for c in many[1::2]:
    c.close()

# One that never reads and then resets; others that are killed in the midst of a transfer.
for _ in range(20):
    c = Client(receive_buffer=4096)
    c.socket.settimeout(0)
    try:
        while True:
            c.socket.send(b"y" * 65536)
    except BlockingIOError:
        pass
    c.reset()

def flood(tell):
    c = Client()
    c.send(b"z" * 10000)
    c.take(1)
    tell()
    while True:
        c.send(b"z" * 10000)
        c.more()
victims(10, flood)

check(Client().send(b"still here").take(10) == b"still here")
END

alive
same_descriptors "$before"

# With every descriptor in use those who are connected are served, and the others later.
stop
DESCRIPTORS=40 start "$server"
python <<'END'
from client import *
many = [Client() for _ in range(60)]
for i, c in enumerate(many):
    c.send(b"%03d" % i)
for i, c in enumerate(many[:20]):
    check(c.take(3) == b"%03d" % i)
check(many[-1].silent())
for c in many[:30]:
    c.close()
for i, c in list(enumerate(many))[30:]:
    check(c.take(3) == b"%03d" % i)
END
alive

# A port in use is one sentence and status 1.
status=0
"$build/examples/$server" --port "$port" >"$work/out" 2>"$work/err" || status=$?
[ "$status" -eq 1 ] && [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" -eq 1 ] &&
    grep -q 'in use' "$work/err" || fail "port in use: status $status, $(cat "$work/err")"

# SIGTERM and SIGINT end it in order, open connections and all.
python <<'END'
from client import *
c = Client().send(b"open")
check(c.take(4) == b"open")
os.kill(int(os.environ["SERVER"]), signal.SIGTERM)
check(c.ends())
END
ended "$pid"
[ "$status" -eq 0 ] || fail "status $status after SIGTERM"
start "$server"
stop INT

"$build/examples/$server" --help | grep -- --port >/dev/null || fail "--help does not tell of --port"
for wrong in --port=x --port=65536 --port=-1 --nonsense word; do
    status=0
    "$build/examples/$server" "$wrong" >/dev/null 2>"$work/err" || status=$?
    [ "$status" -eq 2 ] && [ -s "$work/err" ] || fail "$wrong: status $status"
done
