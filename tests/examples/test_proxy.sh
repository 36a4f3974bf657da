#!/usr/bin/env bash
# needs: fibers. proxy: what one peer does the other sees: bytes, half closes, resets, slowness.
set -euo pipefail
source "$(dirname -- "$0")/lib.sh"

# The server behind it. A client's first line tells it how to behave.
cat >"$work/python/upstream.py" <<'END'
import os, socket, struct, sys, threading

ends = {} # how a connection ended, by the name that its client gave it

def until_end(name, s, size=65536):
    count = 0
    try:
        while piece := s.recv(size):
            count += len(piece)
        ends[name] = f"end after {count}"
    except ConnectionResetError:
        ends[name] = "reset"

def serve(s):
    line = b""
    while not line.endswith(b"\n"):
        byte = s.recv(1)
        if not byte:
            return s.close()
        line += byte
    what, name = line.decode().split()
    if what == "echo":
        while piece := s.recv(65536):
            s.sendall(piece)
    elif what == "late": # the answer comes after the question's end, however long that takes
        until_end(name, s)
        s.sendall(b"a" * (4 << 20))
    elif what == "first": # it is through before the client is
        s.sendall(b"bye")
        s.shutdown(socket.SHUT_WR)
        until_end(name, s)
    elif what == "reset":
        s.sendall(b"part")
        s.recv(1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif what == "silent":
        until_end(name, s)
    elif what == "deaf": # doesn't read until it is told to, by another connection
        told = threading.Event()
        deaf[name] = told
        told.wait()
        until_end(name, s)
    elif what == "hear":
        deaf[name].set()
        s.sendall(b"y")
    elif what == "quit":
        os._exit(0)
    elif what == "how":
        s.sendall(ends.get(name, "?").encode())
    s.close()

deaf = {}
listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
END
mkfifo "$work/port"
python3 "$work/python/upstream.py" >"$work/port" 2>>"$work/stderr" &
upstream_pid=$!
children[$upstream_pid]=1
read -r -t 30 upstream <"$work/port"

start proxy --to-port "$upstream" --drain-ms 200
before=$(descriptors)

python <<'END'
from client import *
import threading

def opened(what, name="x", **named):
    return Client(**named).send(f"{what} {name}\n".encode())

def all_of(c):
    while c.more():
        pass
    return c.data

def how(name):
    return all_of(opened("how", name)).decode()

def ended(name, expected):
    until(lambda: how(name) != "?", "the end of", name)
    check(how(name) == expected, name, how(name))

def is_reset(c):
    try:
        while c.more():
            pass
        return False
    except ConnectionResetError:
        return True

# Bytes, one by one and many at a time, in both directions at once.
c = opened("echo")
for byte in b"one by one":
    c.send(bytes([byte]))
    check(c.take(1) == bytes([byte]))
data = os.urandom(8 << 20)
writer = threading.Thread(target=lambda: c.send(data).half_close())
writer.start()
check(c.take(len(data)) == data)
check(c.ends())
writer.join()

# The client's half close: the answer begins after it.
c = opened("late", "late").send(b"q" * 1000000).half_close()
check(c.take(4 << 20) == b"a" * (4 << 20))
check(c.ends())
ended("late", "end after 1000000")

# The server's: the client goes on, for as long as it likes.
c = opened("first", "first")
check(c.take(3) == b"bye")
check(c.ends())
for _ in range(100):
    c.send(b"x" * 10000)
c.half_close()
ended("first", "end after 1000000")
c.close()

# Resets are passed on, and not as an end: what came before is all there, and known not to be all.
c = opened("reset")
check(c.take(4) == b"part")
c.send(b"x")
check(is_reset(c), "a reset became an orderly end")
c = opened("silent", "resets")
c.send(b"x" * 1000)
c.reset()
ended("resets", "reset")

# One that doesn't read holds up the other, and nobody else; nothing is lost when it goes on.
c = opened("deaf", "deaf")
c.socket.settimeout(0.5)
sent = 0
try:
    while True:
        sent += c.socket.send(b"z" * 65536)
except TimeoutError:
    pass
check(sent < 64 << 20, "there is no back pressure")
other = opened("echo")
other.send(b"still")
check(other.take(5) == b"still")
check(opened("hear", "deaf").take(1) == b"y")
c.socket.settimeout(30)
c.half_close()
ended("deaf", f"end after {sent}")
check(c.ends())

# A client that doesn't read, and then resets.
c = opened("echo", receive_buffer=4096)
c.socket.settimeout(0.5)
try:
    while True:
        c.socket.send(b"y" * 65536)
except TimeoutError:
    pass
c.reset()

# Many at a time, of all kinds.
many = [opened("echo", i) for i in range(200)]
for i, c in enumerate(many):
    c.send(b"client %d" % i)
for i, c in reversed(list(enumerate(many))):
    check(c.take(len(b"client %d" % i)) == b"client %d" % i)
for c in many[::2]:
    c.reset()
for c in many[1::2]:
    check(c.half_close().ends())
END

alive
same_descriptors "$before"

# One that rests for ever, and one that is in use, when it stops: the time is up for both; neither is told
# that this was the end.
python <<'END'
from client import *
c = Client().send(b"echo x\n")
c.send(b"x")
check(c.take(1) == b"x")
os.kill(int(os.environ["SERVER"]), signal.SIGTERM)
try:
    check(not c.more())
    check(False, "an orderly end, of what was cut off")
except ConnectionResetError:
    pass
END
ended "$pid"
[ "$status" -eq 0 ] || fail "status $status after SIGTERM"
grep -q 'connections,' <<<"$said" || fail "it said: $said"

# Nothing moves for too long; but a direction may rest while the other one moves.
start proxy --to-port "$upstream" --idle-ms 500
python <<'END'
from client import *
c = Client().send(b"silent idle\n")
slow = Client().send(b"silent slow\n")
for _ in range(20):
    slow.send(b"x")
    time.sleep(0.05)
check(not slow.data and slow.silent())
try:
    c.more()
    check(False, "an orderly end")
except ConnectionResetError:
    pass
END
stop

# So few descriptors that most have to wait: they do, and none is turned away.
for few in 24 40 100; do
    DESCRIPTORS=$few start proxy --to-port "$upstream"
    before=$(descriptors)
    python <<'END'
from client import *
many = [Client().send(b"echo few\nword") for _ in range(60)]
for c in many:
    check(c.half_close().take(4) == b"word" and c.ends())
    c.close()
END
    same_descriptors "$before"
    stop
done
grep 'Too many open files' "$work/stderr" && fail "it took more than it can have"

# A server that isn't there: each client sees it at once, and the log tells why.
start proxy --to-port "$upstream"
python "$upstream" <<'END'
from client import *
check(Client(port=int(sys.argv[1])).send(b"quit x\n").ends())
END
wait "$upstream_pid"
unset "children[$upstream_pid]"
python <<'END'
from client import *
for _ in range(3):
    try:
        Client().more()
        check(False, "an orderly end")
    except ConnectionResetError:
        pass
END
[ "$(grep -c "port $upstream: Connection refused" "$work/stderr")" -eq 3 ] || fail "not told"
stop
