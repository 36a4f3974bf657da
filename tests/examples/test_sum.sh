#!/usr/bin/env bash
# needs: fibers. sum: lines in, lines out, through tied buffers.
set -euo pipefail
source "$(dirname -- "$0")/lib.sh"

start sum
before=$(descriptors)

python <<'END'
from client import *
import threading

def one(c):
    while b"\n" not in c.data:
        check(c.more())
    line, c.data = c.data.split(b"\n", 1)
    return line

# One at a time: each answer comes before the next line is sent.
c = Client()
for line, answer in [
        (b"1 2 3\n", b"6"), (b"\n", b"0"), (b"-5\t 2  \r\n", b"-3"), (b"7", None), (b" 1\n", b"8"),
        (b"9223372036854775807\n", b"9223372036854775807"),
        (b"9223372036854775807 1\n", b"error: no sum from byte 20 on"),
        (b"1 x\n", b"error: no sum from byte 2 on"), (b"1\x002\n", b"1")]:
    c.send(line)
    if answer is not None:
        check(one(c) == answer, line)

# A hundred thousand at a time, sent while the answers are read; the last without an end of its own.
count = 100000
c = Client()
data = b"".join(b"%d %d\n" % (i, i + 1) for i in range(count)) + b"1 1"
writer = threading.Thread(target=lambda: c.send(data).half_close())
writer.start()
for i in range(count):
    check(one(c) == b"%d" % (2 * i + 1), i)
check(one(c) == b"2")
check(c.ends())
writer.join()

# The longest line, and one that is too long; what went before is answered.
c = Client().send(b"1\n" + b"1 " * 500 + b"\r\n" + b"1" * 100000)
check(one(c) == b"1")
check(one(c) == b"500")
check(one(c) == b"error: more than 1000 bytes")
check(c.ends())

# Those who go away in the middle.
for _ in range(50):
    Client().send(b"1 2").reset()
    Client().send(b"1 2\n3").close()
check(one(Client().send(b"1 1\n")) == b"2")
END

alive
same_descriptors "$before"

# SIGTERM ends it in order, open connections and all.
python <<'END'
from client import *
c = Client().send(b"1\n")
check(c.take(2) == b"1\n")
os.kill(int(os.environ["SERVER"]), signal.SIGTERM)
check(c.ends())
END
ended "$pid"
[ "$status" -eq 0 ] || fail "status $status after SIGTERM"
