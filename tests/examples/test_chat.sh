#!/usr/bin/env bash
# needs: fibers. chat: rooms, in which all hear all in one order; and who doesn't listen is dropped.
set -euo pipefail
source "$(dirname -- "$0")/lib.sh"

start chat --backlog 64 --drain-ms 3000
before=$(descriptors)

python <<'END'
from client import *
import threading

class Member(Client):
    def __init__(self, name, room="lobby", **named):
        super().__init__(**named)
        self.send(name.encode() + b"\n")
        check(self.hear() == "* you are in lobby")
        if room != "lobby":
            self.send(f"/join {room}\n".encode())
            check(self.hear() == f"* you are in {room}")
    def say(self, text):
        return self.send(text.encode() + b"\n")
    def hear(self):
        while b"\n" not in self.data:
            if not self.more():
                raise EOFError(f"end after {self.data!r}")
        line, self.data = self.data.split(b"\n", 1)
        return line.decode()
    def hears(self, *lines):
        for line in lines:
            heard = self.hear()
            check(heard == line, repr(heard), "instead of", repr(line))

# Two talk; a third, in another room, hears nothing of it.
ann = Member("ann")
other = Member("other", "elsewhere")
ann.hears("* other has come", "* other has left")
bob = Member("bob")
ann.hears("* bob has come")
ann.say("hello").say("bob?")
bob.hears("ann: hello", "ann: bob?")
bob.say("hello, ann")
ann.hears("bob: hello, ann")
bob.say("/who")
bob.hears("* here: bob ann")
bob.say("/join elsewhere")
bob.hears("* you are in elsewhere")
ann.hears("* bob has left")
other.hears("* bob has come")
ann.say("nobody hears me").say("/who")
ann.hears("* here: ann")
bob.say("/what").say("quiet here")
bob.hears("* /join ROOM, /who, /quit")
other.hears("bob: quiet here")
check(ann.silent() and bob.silent() and other.silent())

# Lines cut anywhere, and the end of one's words: what was said before is heard.
bob.say("/join lobby")
bob.hears("* you are in lobby")
ann.hears("* bob has come")
for byte in b"in pieces\n":
    ann.send(bytes([byte]))
ann.send(b"my last").half_close()
bob.hears("ann: in pieces", "ann: my last", "* ann has left")
check(ann.ends())
other.hears("* bob has left")

# Names: one each, and not anything.
for name, said in (("bob", "that name is taken"), ("b b", "that is no name"), ("", "that is no name"),
                   ("x" * 25, "that is no name")):
    c = Client().send(name.encode() + b"\n")
    check(c.take(len(said) + 3).decode() == f"* {said}\n" and c.ends(), name)
ann = Member("ann") # hers is free again
bob.hears("* ann has come")
ann.send(b"x" * 5000 + b"\n")
ann.hears("* more than 1000 bytes")
check(ann.half_close().ends()) # no reset, though it read no more
bob.hears("* ann has left")
bob.say("/quit\n" + "x" * 5000)
check(bob.half_close().ends())

# Those who go without a word.
watcher = Member("watcher")
for i in range(20):
    m = Member(f"m{i}")
    watcher.hears(f"* m{i} has come")
    m.send(b"half a line")
    m.reset() if i % 2 else m.close()
    if i % 2 == 0:
        watcher.hears(f"m{i}: half a line")
    watcher.hears(f"* m{i} has left")
def talk(tell):
    m = Member(f"victim{os.getpid()}")
    tell()
    while True:
        m.say("still alive")
victims(5, talk)
def alone():
    watcher.say("/who")
    while not (line := watcher.hear()).startswith("* here:"):
        pass
    return line == "* here: watcher"
until(alone, "the victims' end")
watcher.close()

# Many at a time, each says much at once: all hear all, each speaker's words in order, and all hear
# the same order of everything.
crowd = [Member(f"c{i}", "crowd") for i in range(20)]
# until all are there for all
for i, c in enumerate(crowd):
    c.hears(*(f"* c{j} has come" for j in range(i + 1, 20)))
threads = [threading.Thread(target=c.send, args=(b"".join(b"%d\n" % k for k in range(200)),))
           for c in crowd]
for t in threads:
    t.start()
heard = [[c.hear() for _ in range(19 * 200)] for c in crowd]
for t in threads:
    t.join()
for i, lines in enumerate(heard):
    for j in range(20):
        words = [line.split(": ")[1] for line in lines if line.startswith(f"c{j}: ")]
        check(words == ([] if i == j else [str(k) for k in range(200)]), "c%d heard c%d" % (i, j))
for i, j in ((0, 1), (5, 19)):
    def others(lines):
        return [line for line in lines if line.split(":")[0] not in (f"c{i}", f"c{j}")]
    check(others(heard[i]) == others(heard[j]), "not one order")
for c in crowd:
    c.close()

# One doesn't listen. It is dropped, the others hear of it, and of everything else.
speaker = Member("speaker", "slow")
listener = Member("listener", "slow")
speaker.hears("* listener has come")
deaf = Member("deaf", "slow", receive_buffer=4096)
speaker.hears("* deaf has come")
listener.hears("* deaf has come")
count, gone = 0, False
while not gone:
    check(count < 100000, "nobody is dropped")
    for _ in range(50):
        speaker.say("%d %s" % (count, "x" * 900))
        count += 1
    speaker.say("/who")
    while True:
        line = speaker.hear()
        gone |= line == "* deaf was too slow"
        if line.startswith("* here:"):
            break
    for i in range(count - 50, count):
        line = listener.hear()
        if line == "* deaf was too slow":
            line = listener.hear()
        check(line.startswith("speaker: %d " % i), line[:80])
try:
    while deaf.more():
        pass
except ConnectionResetError:
    pass
check(speaker.say("still here") and listener.hear() in ("speaker: still here", "* deaf was too slow"))
END

alive
same_descriptors "$before"

# Stopping: what has been said is told, and then comes the end.
python <<'END'
from client import *
def line(c):
    while b"\n" not in c.data:
        check(c.more())
    line, c.data = c.data.split(b"\n", 1)
    return line
a, b = Client().send(b"a\n"), Client()
check(line(a) == b"* you are in lobby")
b.send(b"b\n")
check(line(b) == b"* you are in lobby")
check(line(a) == b"* b has come")
b.send(b"a word\n")
check(line(a) == b"b: a word")
os.kill(int(os.environ["SERVER"]), signal.SIGTERM)
for c in (a, b): # one of them hears of the other's end first
    while c.more():
        pass
    check(c.data in (b"", b"* a has left\n", b"* b has left\n"), c.data)
END
ended "$pid"
[ "$status" -eq 0 ] || fail "status $status after SIGTERM"
grep -q '1 clients dropped$' <<<"$said" || fail "it said: $said"

# One that reads slowly, but reads, is not held to the time of one write for all that there is.
start chat --backlog 100000 --write-ms 500
python <<'END'
from client import *
slow = Client(receive_buffer=4096).send(b"slow\n")
check(slow.take(19) == b"* you are in lobby\n")
loud = Client().send(b"loud\n")
check(loud.take(19) == b"* you are in lobby\n")
line = b"x" * 900 + b"\n"
count = 10000
for _ in range(count // 100):
    loud.send(line * 100)
loud.send(b"/who\n")
while b"* here:" not in loud.data: # all of it has been said
    check(loud.more())
check(slow.take(16) == b"* loud has come\n")
for i in range(count):
    check(slow.take(len(line) + 6) == b"loud: " + line)
    if i < 6000 and i % 6 == 0:
        time.sleep(0.001) # a second in all, at least: twice the time of one write
END
stop
