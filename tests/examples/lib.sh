# shellcheck shell=bash disable=SC2015,SC2034,SC2119,SC2120
# lib.sh: what the tests of the examples share. Source it with the build directory as $1.
#
# Servers run on free ports of the loopback. Each child is ended by its pid when the test ends,
# however that comes about. Nothing waits by sleeping for a guessed time: a test waits for a line, a
# byte or a state, and fails after a bound that only a hang can reach.

build=${1:?usage: $0 BUILD_DIRECTORY}
work=$(mktemp -d)
declare -A children # pids of those not waited for yet
declare -A output # a server's standard output, by pid

end_children() {
    local status=$? pid
    trap - EXIT
    for pid in "${!children[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    if [ "$status" -ne 0 ] && [ "$status" -ne 77 ] && [ -s "$work/stderr" ]; then
        echo "---- what the servers said on stderr:"
        cat "$work/stderr"
    fi
    rm -rf "$work"
    exit "$status"
}
trap end_children EXIT
trap 'exit 1' INT TERM HUP

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

skip() {
    echo "skipped: $*"
    exit 77
}

# Fake stacks for use-after-return would be looked for on the wrong stack after a switch.
export ASAN_OPTIONS=detect_stack_use_after_return=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}

# start NAME [ARGUMENT...]: starts an example; sets $pid and $port. DESCRIPTORS limits it.
start() {
    local name=$1 line fd
    shift
    [ -x "$build/examples/$name" ] || skip "this build has no $name"
    rm -f "$work/stdout"
    mkfifo "$work/stdout"
    (
        [ -z "${DESCRIPTORS-}" ] || ulimit -n "$DESCRIPTORS"
        exec "$build/examples/$name" --port 0 "$@"
    ) >"$work/stdout" 2>>"$work/stderr" &
    pid=$!
    children[$pid]=1
    exec {fd}<"$work/stdout"
    output[$pid]=$fd
    read -r -t 30 -u "$fd" line || fail "$name did not say where it listens"
    [[ $line =~ ^listening\ on\ 127\.0\.0\.1:([0-9]+)$ ]] || fail "$name said: $line"
    port=${BASH_REMATCH[1]}
    # It has opened all that it opens once when it has served somebody.
    python <<<'import client; assert client.Client().half_close().ends()'
}

# ended PID: waits for a server's end; sets $status and $said, what it still wrote to its stdout.
ended() {
    local fd=${output[$1]}
    said=$(timeout 30 cat <&"$fd") || fail "process $1 does not end"
    exec {fd}<&-
    status=0
    wait "$1" || status=$?
    unset "children[$1]"
}

# stop [SIGNAL]: asks the server to end, and expects that it does so in order.
stop() {
    kill -"${1-TERM}" "$pid"
    ended "$pid"
    [ "$status" -eq 0 ] || fail "ended with status $status after SIG${1-TERM}"
}

alive() {
    kill -0 "$pid" 2>/dev/null || fail "the server has died"
}

descriptors() {
    find "/proc/$pid/fd" -mindepth 1 -maxdepth 1 | wc -l
}

# same_descriptors COUNT: waits until the server has as many open as before.
same_descriptors() {
    for _ in {1..200}; do
        [ "$(descriptors)" -ne "$1" ] || return 0
        sleep 0.1
    done
    ls -l "/proc/$pid/fd"
    fail "the server had $1 descriptors and has $(descriptors)"
}

fetch() { # fetch PATH [CURL ARGUMENT...]
    local path=$1
    shift
    curl --silent --show-error --max-time 30 "$@" "http://127.0.0.1:$port$path"
}

# The clients are Python programs of the tests' own; `python` runs one from its standard input.
mkdir "$work/python"
cat >"$work/python/client.py" <<'END'
import os, resource, signal, socket, struct, sys, time

PORT = int(os.environ["PORT"])
_soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_hard, _hard))

def check(condition, *what):
    if not condition:
        print("FAILED, line", sys._getframe(1).f_lineno, *what, flush=True)
        sys.exit(1)

def request(path="/", method="GET", version="1.1", fields="Host: test\r\n"):
    return f"{method} {path} HTTP/{version}\r\n{fields}\r\n".encode()

class Client:
    """One connection; reads with a bound of 30 s that only a hang can reach."""
    def __init__(self, port=PORT, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(30)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""
    def send(self, data):
        self.socket.sendall(data)
        return self
    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)
        return self
    def more(self):
        piece = self.socket.recv(65536)
        self.data += piece
        return len(piece) > 0
    def take(self, count):
        while len(self.data) < count:
            if not self.more():
                raise EOFError(f"end after {self.data!r}")
        piece, self.data = self.data[:count], self.data[count:]
        return piece
    def line(self):
        while b"\r\n" not in self.data:
            if not self.more():
                raise EOFError(f"end after {self.data!r}")
        line, self.data = self.data.split(b"\r\n", 1)
        return line.decode()
    def answer(self, head=False):
        """(status, fields, body) of one answer."""
        version, status, phrase = self.line().split(" ", 2)
        check(version == "HTTP/1.1", version)
        fields = {}
        while (line := self.line()) != "":
            name, value = line.split(": ", 1)
            check(name.lower() not in fields, "field twice:", name)
            fields[name.lower()] = value
        body = b"" if head or status == "100" else self.take(int(fields["content-length"]))
        return int(status), fields, body
    def get(self, *arguments, **named):
        return self.send(request(*arguments, **named)).answer()
    def ends(self):
        """True if the server closes, in order and without another byte."""
        return self.data == b"" and not self.more()
    def silent(self):
        """True if nothing is there to be read now."""
        self.socket.settimeout(0)
        try:
            self.more()
            return False
        except BlockingIOError:
            return self.data == b""
        finally:
            self.socket.settimeout(30)
    def close(self):
        self.socket.close()
    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

def until(condition, *what):
    for _ in range(300):
        if condition():
            return
        time.sleep(0.1)
    check(False, "in vain waited for", *what)

def victims(count, work):
    """Processes that each run work(), report that they are in the midst of it, and get SIGKILL."""
    running = []
    for _ in range(count):
        seen, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                work(lambda: os.write(told, b"."))
            finally:
                os._exit(1)
        os.close(told)
        running.append((pid, seen))
    for pid, seen in running:
        check(os.read(seen, 1) == b".", "a client failed before it could be killed")
        os.close(seen)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
END

python() {
    PORT=$port SERVER=$pid PYTHONPATH=$work/python PYTHONDONTWRITEBYTECODE=1 \
        timeout 100 python3 - "$@" || fail "see above"
}
