#!/usr/bin/env bash
# needs: fibers. What http_hello answers: the protocol, right and wrong, whole and in pieces.
set -euo pipefail
source "$(dirname -- "$0")/lib.sh"

start http_hello --body-max 100000
before=$(descriptors)

# ---- a real client

[ "$(fetch /)" = 'Hello, World!' ] || fail "GET /"
[ "$(fetch '/?query=1')" = 'Hello, World!' ] || fail "a query"
[ "$(fetch / --http1.0)" = 'Hello, World!' ] || fail "HTTP/1.0"
[ "$(fetch / --http2)" = 'Hello, World!' ] || fail "an offer of HTTP/2 is to be ignored"
[ "$(fetch / --proxy "http://127.0.0.1:$port")" = 'Hello, World!' ] || fail "absolute form"
fetch / --head | grep -i '^content-length: 13' >/dev/null || fail "HEAD"
[ "$(fetch /none --output /dev/null --write-out '%{http_code}')" = 404 ] || fail "404"
# One connection for several requests.
[ "$(fetch '/[1-20]' --output /dev/null --write-out '%{num_connects}' | tr -d 0)" = 1 ] ||
    fail "curl could not keep its connection"

head -c 90000 /dev/zero >"$work/body"
[ "$(fetch /count --data-binary "@$work/body")" = '90000 bytes' ] || fail "a body"
[ "$(fetch /count --data-binary "@$work/body" -H 'Transfer-Encoding: chunked')" = '90000 bytes' ] ||
    fail "a body in chunks"
[ "$(fetch /count --data-binary "@$work/body" -H 'Expect: 100-continue' \
    --expect100-timeout 25 --max-time 20)" = '90000 bytes' ] || fail "curl waits for 100 Continue"
head -c 5000000 /dev/zero >"$work/body"
[ "$(fetch /count --data-binary "@$work/body" -H Expect: --output /dev/null \
    --write-out '%{http_code}')" = 413 ] || fail "curl does not get to read 413"

# ---- raw bytes

python <<'END'
from client import *
import threading

HELLO = b"Hello, World!"

# Keep-alive.
c = Client()
for _ in range(3):
    status, fields, body = c.get()
    check(status == 200 and body == HELLO and "connection" not in fields)
    check(fields["date"].endswith(" GMT") and len(fields["date"]) == 29)
c.half_close()
check(c.ends())

# Pipelined, in order, also when packets cut the requests anywhere.
paths = ["/", "/nothing", "/", "/", "/nothing"] * 8
stream = b"".join(request(path) for path in paths)
for piece in (1, 2, 7, 59, 4096, len(stream)):
    c = Client()
    for i in range(0, len(stream), piece):
        c.send(stream[i:i + piece])
    for path in paths:
        check(c.answer()[0] == (200 if path == "/" else 404), "pieces of", piece)
    check(c.silent())
    c.close()

# More pipelined requests and answers than all buffers hold, sent while the answers are read.
c = Client(receive_buffer=4096)
writer = threading.Thread(target=lambda: c.send(request() * 20000).half_close())
writer.start()
for i in range(20000):
    status, fields, body = c.answer()
    check(status == 200 and body == HELLO)
check(c.ends())
writer.join()

# Empty lines before a request are to be skipped.
check(Client().send(b"\r\n\r\n" + request()).answer()[0] == 200)

# HEAD has the fields of GET and no body, and the connection goes on.
c = Client().send(request(method="HEAD") + request())
status, fields, body = c.answer(head=True)
check(status == 200 and fields["content-length"] == "13")
check(c.answer()[2] == HELLO)

# Ends: by version, by field, by the client's half close.
c = Client().send(request(version="1.0"))
status, fields, body = c.answer()
check(status == 200 and fields["connection"] == "close" and c.ends())
c = Client().send(request(version="1.0", fields=""))
check(c.answer()[0] == 200 and c.ends())
c = Client()
for _ in range(2):
    status, fields, body = c.get(version="1.0", fields="Connection: keep-alive\r\n")
    check(status == 200 and fields["connection"] == "keep-alive")
c = Client().send(request(fields="Host: a\r\nConnection: close\r\n") + request())
status, fields, body = c.answer()
check(status == 200 and fields["connection"] == "close" and c.ends())
c = Client().send(request() * 3).half_close()
for _ in range(3):
    check(c.answer()[0] == 200)
check(c.ends())

# Half a request and the end: there is nobody to answer to.
for half in (b"G", b"GET / HT", request()[:-1], request("/count", "POST", fields="Host: a\r\n"
             "Content-Length: 5\r\n") + b"12"):
    check(Client().send(half).half_close().ends(), half)
    Client().send(half).close()
    Client().send(half).reset()

# Bodies.
def post(fields, body, path="/count"):
    return request(path, "POST", fields="Host: a\r\n" + fields) + body
chunked = "Transfer-Encoding: chunked\r\n"
c = Client()
c.send(post("Content-Length: 5\r\n", b"12345") + post(chunked, b"3\r\nabc\r\n10;x=y\r\n0123456789abcdef"
       b"\r\n0\r\nTrailer: t\r\n\r\n") + post("Content-Length: 0\r\n", b"") + post(chunked, b"0\r\n\r\n")
       + request("/", fields="Host: a\r\nContent-Length: 3\r\n") + b"GET" + request())
for expected in (b"5 bytes\n", b"19 bytes\n", b"0 bytes\n", b"0 bytes\n", HELLO, HELLO):
    status, fields, body = c.answer()
    check(status == 200 and body == expected, expected, body)
c = Client()
for byte in post(chunked, b"3\r\nabc\r\n0\r\n\r\n"):
    c.send(bytes([byte]))
check(c.answer()[2] == b"3 bytes\n")
c.send(post("Content-Length: 5\r\nExpect: 100-continue\r\n", b""))
check(c.answer()[0] == 100 and c.silent())
c.send(b"12345")
check(c.answer()[2] == b"5 bytes\n")

# Wrong methods, right connection.
c = Client()
status, fields, body = c.get(method="DELETE")
check(status == 405 and fields["allow"] == "GET, HEAD")
status, fields, body = c.get("/count")
check(status == 405 and fields["allow"] == "POST")
check(c.send(post("Content-Length: 3\r\n", b"abc", "/")).answer()[0] == 405)
check(c.get()[0] == 200)

# What ends the connection. The answers before it arrive, and so does its own, whatever follows.
def fields_of(size):
    return "Host: a\r\n" + "".join(f"X-{i}: {'v' * 90}\r\n" for i in range(size // 100))
refused = [
    (400, b"GARBAGE\r\n\r\n"),
    (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    (400, b"\x00" * 100),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nNo colon\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost : a\r\n\r\n"),
    (400, b"GET / HTTP/x.1\r\nHost: a\r\n\r\n"),
    (400, b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, request(fields="")),
    (400, request(fields="Host: a\r\nhost: b\r\n")),
    (400, post("Content-Length: -1\r\n", b"")),
    (400, post("Content-Length: 1\r\nContent-Length: 2\r\n", b"ab")),
    (400, post("Content-Length: 99999999999999999999999\r\n", b"")),
    (400, post("Content-Length: 3\r\n" + chunked, b"3\r\nabc\r\n0\r\n\r\n")),
    (400, post(chunked, b"x\r\nabc\r\n")),
    (400, post(chunked, b"fffffffffffffffff\r\nabc\r\n")),
    (501, request(method="BREW")),
    (501, request(method="GETS")),
    (501, request("a:1", "CONNECT")),
    (505, request(version="2.0")),
    (505, request(version="0.9")),
    (505, b"GET /\r\n\r\n"),
    (413, post("Content-Length: 100001\r\n", b"")),
    (413, post("Content-Length: 1000000\r\nExpect: 100-continue\r\n", b"")),
    (413, post(chunked, b"186a1\r\n" + b"x" * 100001)),
    (413, post(chunked, b"1000\r\n" * 1 + (b"y" * 4096 + b"\r\n1000\r\n") * 30)),
    (414, request("/" + "a" * 2048)),
    (414, request("/" + "a" * 100000)),
    (431, request(fields=fields_of(17000))),
    (431, request(fields=fields_of(200000))),
    (431, request(fields="Host: a\r\nX: " + "v" * 100000 + "\r\n")),
    (431, request(fields="Host: a\r\n" + "n" * 100000 + ": 1\r\n")),
    (431, post(chunked, b"0\r\n" + b"T: trailer\r\n" * 9000)),
]
for expected, wrong in refused:
    for ahead in (0, 2):
        c = Client().send(request() * ahead + wrong)
        for _ in range(ahead):
            check(c.answer()[0] == 200)
        status, fields, body = c.answer()
        check(status == expected, "wanted", expected, "got", status, "for", wrong[:80])
        check(fields["connection"] == "close" and c.half_close().ends())
        c.close()

# As much as is allowed is answered, many times over.
for _ in range(2):
    c = Client()
    c.send(request("/" + "a" * 2047) * 20 + request(fields=fields_of(15000)) * 20)
    for expected in [404] * 20 + [200] * 20:
        check(c.answer()[0] == expected)
    c.send(post("Content-Length: 100000\r\n", b"x" * 100000))
    check(c.answer()[2] == b"100000 bytes\n")

# A client that says close and goes on sending all the same gets to read its answer.
for _ in range(50):
    c = Client().send(request(fields="Host: a\r\nConnection: close\r\n") + request() * 1000)
    check(c.answer()[0] == 200 and c.half_close().ends())
END

alive
same_descriptors "$before"
stop
[[ $said =~ ^[0-9]+\ requests\ on\ [0-9]+\ connections$ ]] || fail "it said: $said"

# ---- deadlines

start http_hello --request-ms 300 --idle-ms 300
before=$(descriptors)
python <<'END'
from client import *
for half in (b"GET / HTTP/1.1\r\nHo", request("/count", "POST", fields="Host: a\r\n"
             "Content-Length: 5\r\n") + b"12"):
    c = Client().send(request() + half)
    check(c.answer()[0] == 200)
    status, fields, body = c.answer()
    check(status == 408 and fields["connection"] == "close" and c.half_close().ends())

# A byte now and then doesn't put a request's deadline off.
c = Client()
try:
    for byte in request(fields="Host: a\r\n" + "X: y\r\n" * 1000):
        c.send(bytes([byte]))
        time.sleep(0.01)
    check(False, "there seems to be no deadline")
except ConnectionError:
    pass # the answer has come, and the connection is closed

# Idle ones are closed without a word.
check(Client().ends())
c = Client()
check(c.get()[0] == 200)
check(c.ends())

# One that never reads doesn't keep its connection for ever.
c = Client(receive_buffer=4096)
try:
    while True:
        c.send(request() * 100)
except ConnectionError:
    pass
END
alive
same_descriptors "$before"
stop
