#!/usr/bin/env python3
"""Reference model: the rules of docs/promises.md, executed.  Python 3 stdlib.

model.py FILE...      run every case; compare with the trace in the file (if it
                      has one) and report differences
model.py -p FILE...   print each case with the model's trace
model.py -c FILE...   also print coverage of the internal situations (with -o,
                      of every operation by operand state and place too)

The model was written from the rules, not from Lwt's code; where Lwt itself
misbehaves  it raises Discard."""
import sys
import threading
from collections import Counter, deque

FUEL = 3000
cover = Counter()


class Discard(Exception):
    pass


class LibError(Exception):
    """An error value: E<n>, Canceled or Invalid."""

    def __init__(self, name):
        super().__init__(name)
        self.name = name


# --------------------------------------------------------------------------
# The promise library
# --------------------------------------------------------------------------

PENDING, OK, ERR, PROXY = range(4)


class Promise:
    __slots__ = ("state", "value", "regular", "cancel", "how")

    def __init__(self, state=PENDING, value=None, how=None):
        self.state = state
        self.value = value          # payload, LibError, or the proxy target
        self.regular = []           # waiters, in the order they will run
        self.cancel = []            # (storage, function), likewise
        self.how = how              # None | "self" | list of promises


class Waiter:
    """A regular waiter.  [fn] is None once removed."""
    __slots__ = ("fn",)

    def __init__(self, fn):
        self.fn = fn


def under(p):
    while p.state == PROXY:
        if p.value.state == PROXY:
            cover["proxy chain"] += 1
            p.value = p.value.value
        else:
            p = p.value
    return p


class Lib:
    def __init__(self):
        self.depth = 0
        self.queue = deque()
        self.storage = {}
        self.paused = []
        self.paused_count = 0
        self.notifier = None
        self.hook = None

    # -- resolution --------------------------------------------------------

    def run_waiters(self, rec, state, value):
        regular, cancel = rec
        if state == ERR and value.name == "Canceled":
            if len(cancel) > 1:
                cover["several cancel callbacks"] += 1
            for storage, fn in cancel:
                if storage is not None:
                    self.storage = storage
                self.guard(fn)
        if len(regular) > 1:
            cover["several regular waiters"] += 1
        for w in regular:
            if w.fn is None:
                cover["removed waiter skipped"] += 1
            else:
                w.fn(state, value)

    def run_now(self, rec, state, value):
        saved = self.storage
        self.depth += 1
        cover["max depth %d" % min(self.depth, 9)] += 1
        self.run_waiters(rec, state, value)
        if self.depth == 1:
            while self.queue:
                cover["deferred run"] += 1
                self.run_waiters(*self.queue.popleft())
        self.depth -= 1
        self.storage = saved

    def resolve(self, p, state, value):
        if p.state != PENDING:
            raise Discard("resolve of a resolved promise")
        rec = (p.regular, p.cancel)
        p.state, p.value = state, value
        p.regular = p.cancel = p.how = None
        return rec

    def resolve_now(self, p, state, value):
        self.run_now(self.resolve(p, state, value), state, value)

    def guard(self, fn, *args):
        try:
            fn(*args)
        except LibError as x:
            self.hook(x)

    def wakeup(self, p, state, value, later=False):
        p = under(p)
        if p.state == ERR and p.value.name == "Canceled":
            return
        if p.state != PENDING:
            raise LibError("Invalid")
        rec = self.resolve(p, state, value)
        if later and self.depth >= 1:
            cover["deferred"] += 1
            self.queue.append((rec, state, value))
        else:
            self.run_now(rec, state, value)

    def cancel(self, p):
        found, path = [], set()

        def search(p):
            p = under(p)
            if p.state != PENDING or p.how is None:
                return
            if p.how == "self":
                p_rec = self.resolve(p, ERR, CANCELED)
                found.append(p_rec)
                return
            if id(p) in path:
                raise Discard("cancel of a cyclic promise")
            path.add(id(p))
            for q in p.how:
                search(q)
            path.discard(id(p))

        search(p)
        if len(found) > 1:
            cover["cancel found several"] += 1
        for rec in reversed(found):
            self.run_now(rec, ERR, CANCELED)

    # -- waiters -----------------------------------------------------------

    def wait_on(self, p, fn):
        """A waiter that only resolution removes."""
        p.regular.insert(0, Waiter(fn))

    def wait_on_each(self, ps, fn):
        """One shared waiter; the first promise to resolve runs it, and no
        other one will."""
        w = Waiter(None)

        def once(state, value):
            w.fn = None
            fn(state, value)

        w.fn = once
        for p in ps:
            under(p).regular.insert(0, w)

        def remove():
            w.fn = None
        return remove

    # -- primitives --------------------------------------------------------

    def task(self):
        return Promise(how="self")

    def wait(self):
        return Promise()

    def result(self, state, value):
        return Promise(state, value)

    # -- sequence ----------------------------------------------------------

    def call(self, fn, *args):
        try:
            return fn(*args)
        except LibError as x:
            return self.result(ERR, x)

    def become(self, outer, inner):
        outer, inner = under(outer), under(inner)
        if inner is outer:
            cover["returned itself"] += 1
            return
        if inner.state != PENDING:
            self.resolve_now(outer, inner.state, inner.value)
            return
        if outer.state != PENDING:
            raise Discard("outer promise already resolved")
        cover["proxy made"] += 1
        if inner.regular and outer.regular:
            cover["proxy merged both lists"] += 1
        outer.regular = outer.regular + inner.regular
        outer.cancel = outer.cancel + inner.cancel
        outer.how = inner.how
        inner.state, inner.value = PROXY, outer
        inner.regular = inner.cancel = inner.how = None

    def sequence(self, p, on_ok, on_err):
        """[on_ok]/[on_err] give a promise; None passes the result through."""
        p = under(p)
        if p.state != PENDING:
            fn = on_ok if p.state == OK else on_err
            if fn is None:
                return p
            return fn(p.value)                  # may raise: the caller's
        q = Promise(how=[p])
        storage = self.storage

        def waiter(state, value):
            fn = on_ok if state == OK else on_err
            if fn is None:
                self.resolve_now(under(q), state, value)
            else:
                self.storage = storage
                self.become(q, self.call(fn, value))

        self.wait_on(p, waiter)
        return q

    def bind(self, p, f):
        return self.sequence(p, f, None)

    def map(self, f, p):
        p = under(p)
        if p.state == ERR:
            return p
        if p.state == OK:
            try:
                return self.result(OK, f(p.value))
            except LibError as x:
                return self.result(ERR, x)
        q = Promise(how=[p])
        storage = self.storage

        def waiter(state, value):
            if state == OK:
                self.storage = storage
                try:
                    value = f(value)
                except LibError as x:
                    state, value = ERR, x
            self.resolve_now(under(q), state, value)

        self.wait_on(p, waiter)
        return q

    def catch(self, f, h):
        return self.sequence(self.call(f), None, h)

    def try_bind(self, f, g, h):
        return self.sequence(self.call(f), g, h)

    def finalize(self, f, c):
        def after(state):
            return lambda v: self.bind(c(), lambda _: self.result(state, v))
        return self.try_bind(f, after(OK), after(ERR))

    # -- attached callbacks ------------------------------------------------

    def on_any(self, p, f, g):
        """f / g may be None: nothing to do for that outcome."""
        p = under(p)
        if p.state != PENDING:
            fn = f if p.state == OK else g
            if fn:
                self.guard(fn, p.value)
            return
        storage = self.storage

        def waiter(state, value):
            fn = f if state == OK else g
            if fn:
                self.storage = storage
                self.guard(fn, value)

        self.wait_on(p, waiter)

    def on_cancel(self, p, f):
        p = under(p)
        if p.state == PENDING:
            p.cancel.insert(0, (self.storage, f))
        elif p.state == ERR and p.value.name == "Canceled":
            self.guard(f)

    def forget(self, p, handler):
        p = under(p)
        if p.state == ERR:
            handler(p.value)
        elif p.state == PENDING:
            def waiter(state, value):
                if state == ERR:
                    handler(value)
            self.wait_on(p, waiter)

    def dont_wait(self, f, handler):
        self.forget(self.call(f), handler)

    def async_(self, f):
        self.forget(self.call(f), lambda x: self.hook(x))

    def ignore_result(self, p):
        p = under(p)
        if p.state == ERR:
            raise p.value
        self.forget(p, lambda x: self.hook(x))

    # -- many promises -----------------------------------------------------

    def gather(self, ps, value):
        """join / all / both: [value] is called once all are fulfilled."""
        error = None
        waiting = []
        for p in ps:
            u = under(p)
            if u.state == ERR and error is None:
                error = u.value
            elif u.state == PENDING:
                waiting.append(u)
        if not waiting:
            if error:
                return self.result(ERR, error)
            return self.result(OK, value())
        q = Promise(how=list(ps))
        left = [len(waiting)]
        box = [error]

        def waiter(state, v):
            if state == ERR and box[0] is None:
                box[0] = v
            left[0] -= 1
            if left[0] == 0:
                if box[0]:
                    self.resolve_now(under(q), ERR, box[0])
                else:
                    self.resolve_now(under(q), OK, value())

        for u in waiting:
            self.wait_on(u, waiter)
        return q

    def values(self, ps):
        return lambda: [under(p).value for p in ps]

    def first_resolved(self, ps, cancel_pending):
        ps = list(ps)
        for i, p in enumerate(ps):
            if under(p).state != PENDING:
                if cancel_pending:
                    for q in ps[i + 1:]:
                        self.cancel(q)
                return p
            if cancel_pending:
                self.cancel(p)
        raise AssertionError

    def race(self, ps, cancel):
        """choose / pick, with at most one candidate already resolved."""
        if not ps:
            raise LibError("Invalid")
        errors = [p for p in ps if under(p).state == ERR]
        if errors:
            if cancel:
                for p in ps:
                    self.cancel(p)
            return errors[0]
        if any(under(p).state == OK for p in ps):
            return self.first_resolved(ps, cancel)
        q = Promise(how=list(ps))

        def waiter(state, value):
            if cancel:
                for p in ps:
                    self.cancel(p)
            self.resolve_now(under(q), state, value)

        self.wait_on_each(ps, waiter)
        return q

    def collect(self, ps, split, reverse_pending):
        """State of nchoose / npick / nchoose_split, given that at least one
        of [ps] is resolved: the first rejection wins."""
        values, pending = [], []
        for p in ps:
            u = under(p)
            if u.state == ERR:
                return ERR, u.value
            if u.state == OK:
                values.append(u.value)
            else:
                pending.append(p)
        if reverse_pending:
            pending.reverse()
        return OK, ((values, pending) if split else values)

    def nrace(self, ps, cancel=False, split=False):
        if not ps:
            raise LibError("Invalid")
        if any(under(p).state != PENDING for p in ps):
            state, value = self.collect(ps, split, True)
            if cancel:
                for p in ps:
                    self.cancel(p)
            return self.result(state, value)
        q = Promise(how=list(ps))

        def waiter(_state, _value):
            if split:
                r = self.collect(ps, True, False)
                self.resolve_now(under(q), *r)
                return
            r = self.collect(ps, False, False)
            if cancel:
                for p in ps:
                    self.cancel(p)
            self.resolve_now(under(q), *r)

        self.wait_on_each(ps, waiter)
        return q

    # -- cancellation wrappers ---------------------------------------------

    def protected(self, p):
        if under(p).state != PENDING:
            return p
        q = self.task()
        remove = self.wait_on_each(
            [p], lambda state, value: self.resolve_now(under(q), state, value))
        q.cancel.insert(0, (self.storage, remove))
        return q

    def no_cancel(self, p):
        u = under(p)
        if u.state != PENDING:
            return p
        q = self.wait()
        self.wait_on(
            u, lambda state, value: self.resolve_now(under(q), state, value))
        return q

    def wrap(self, p):
        if under(p).state != PENDING:
            return p
        q = self.task()
        self.on_cancel(q, lambda: self.cancel(p))
        self.on_any(p, lambda v: self.wakeup(q, OK, v),
                    lambda x: self.wakeup(q, ERR, x))
        return q

    # -- pause -------------------------------------------------------------

    def pause(self):
        p = self.task()
        node = [p, True]

        def unlink():
            node[1] = False
        p.cancel.append((None, unlink))         # leaves the storage alone
        self.paused.append(node)
        self.paused_count += 1
        if self.notifier:
            self.notifier(self.paused_count)
        return p

    def tick(self):
        batch = self.paused
        self.paused = []
        self.paused_count = 0
        for node in batch:
            if node[1]:
                self.wakeup(node[0], OK, UNIT)

    def abandon(self):
        self.paused = []
        self.paused_count = 0


CANCELED = LibError("Canceled")
UNIT = ("unit",)


# --------------------------------------------------------------------------
# The script interpreter
# --------------------------------------------------------------------------

def show(v):
    if isinstance(v, int):
        return str(v)
    if isinstance(v, LibError):
        return "!" + v.name
    tag = v[0]
    if tag == "unit":
        return "()"
    if tag == "list":
        return "[" + ",".join(map(show, v[1])) + "]"
    if tag == "pair":
        return "(" + show(v[1]) + "," + show(v[2]) + ")"
    return "<" + ",".join(map(show, v[1])) + "|" + ",".join(map(str, v[2])) + ">"


def error(name):
    return CANCELED if name == "Canceled" else LibError(name)


class Skip(Exception):
    pass


class Interp:
    def __init__(self, lines):
        self.lib = Lib()
        self.lib.hook = lambda x: self.emit("hook " + x.name)
        self.trace = []
        self.cbs = {}
        self.p = {}
        self.owned = set()
        self.shown = {}
        self.fuel = FUEL
        self.level = 0
        self.notifying = False
        self.top = []
        for line in lines:
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if words[0] == "cb":
                parts = [s.split() for s in " ".join(words[3:]).split(";")]
                self.cbs[words[1]] = (parts[:-1], parts[-1])
            else:
                self.top.append(words)

    def emit(self, s):
        self.trace.append(s)

    def state(self, p):
        p = under(p)
        return "?" if p.state == PENDING else show(p.value)

    def run(self):
        for i, words in enumerate(self.top):
            if self.fuel <= 0:
                break
            self.emit("#%d" % (i + 1))
            self.exec(words)
            changed = []
            for n in sorted(self.p, key=lambda n: int(n[1:])):
                s = self.state(self.p[n])
                if self.shown.get(n) != s:
                    self.shown[n] = s
                    changed.append(" %s=%s" % (n, s))
            if changed:
                self.emit("." + "".join(changed))
        self.emit("end")
        return self.trace

    def body(self, c, arg):
        body, result = self.cbs[c]
        self.emit(">%s %s" % (c, "-" if arg is None else show(arg)))
        self.level += 1
        for words in body:
            self.exec(words)
        self.level -= 1
        self.emit("<" + c)
        return result

    def as_promise(self, c, arg):
        r = self.body(c, arg)
        if r[0] == "ret":
            return self.lib.result(OK, int(r[1]))
        if r[0] == "arg":
            if arg is None:
                return self.lib.result(OK, 0)
            return self.lib.result(ERR if isinstance(arg, LibError) else OK, arg)
        if r[0] == "fail":
            return self.lib.result(ERR, error(r[1]))
        if r[0] == "raise":
            raise error(r[1])
        if r[1] in self.p:
            return self.p[r[1]]
        return self.lib.result(OK, 0)

    def as_value(self, c, arg):
        r = self.body(c, arg)
        if r[0] == "ret":
            return int(r[1])
        if r[0] == "arg":
            if isinstance(arg, LibError):
                raise arg
            return 0 if arg is None else arg
        if r[0] in ("fail", "raise"):
            raise error(r[1])
        return 0

    def as_unit(self, c, arg):
        r = self.body(c, arg)
        if r[0] == "raise":
            raise error(r[1])

    def promise(self, n):
        if n not in self.p:
            raise Skip
        return self.p[n]

    def thunk(self, n):
        if n[0] == "p":
            p = self.promise(n)
            return lambda: p
        return lambda: self.as_promise(n, None)

    def assign(self, n, p):
        self.p[n] = p
        self.owned.discard(n)
        self.shown[n] = self.state(p)
        self.emit("=%s %s" % (n, self.shown[n]))

    def exec(self, w):
        if self.fuel <= 0:
            raise Discard("fuel")
        self.fuel -= 1
        try:
            self.statement(w)
        except Skip:
            self.emit("skip")
        except LibError as x:
            self.emit("! " + x.name)

    def note(self, op, operand):
        """Coverage: operation, operand state, where, and loop depth."""
        p = self.p.get(operand)
        tag = "-" if p is None else "?+!"[under(p).state]
        where = "nested" if self.level else "top"
        cover["op %s %s %s%s" % (op, tag, where,
                                 " in-loop" if self.lib.depth else "")] += 1

    def statement(self, w):
        lib = self.lib
        op = w[0]
        if len(w) > 2 and w[1] == "=":
            self.note(w[2], w[3] if len(w) > 3 else None)
        else:
            self.note(op, w[1] if len(w) > 1 else None)
        if len(w) > 1 and w[1] == "=":
            self.make(w[0], w[2], w[3:])
        elif op == "with":
            saved = lib.storage
            lib.storage = dict(saved)
            if w[2] == "none":
                lib.storage.pop(w[1], None)
            else:
                lib.storage[w[1]] = int(w[2])
            self.exec(w[4:])
            lib.storage = saved
        elif op == "repeat":
            for _ in range(int(w[1])):
                self.exec(w[3:])
        elif op.startswith("wakeup"):
            p = self.promise(w[1])
            if w[1] not in self.owned:
                raise Skip
            if op.endswith("_exn"):
                lib.wakeup(p, ERR, error(w[2]), "later" in op)
            else:
                lib.wakeup(p, OK, int(w[2]), "later" in op)
        elif op == "cancel":
            lib.cancel(self.promise(w[1]))
        elif op == "on_cancel":
            lib.on_cancel(self.promise(w[1]), lambda: self.as_unit(w[2], None))
        elif op == "on_any":
            lib.on_any(self.promise(w[1]), lambda v: self.as_unit(w[2], v),
                       lambda x: self.as_unit(w[3], x))
        elif op == "on_success":
            lib.on_any(self.promise(w[1]), lambda v: self.as_unit(w[2], v), None)
        elif op == "on_failure":
            lib.on_any(self.promise(w[1]), None, lambda x: self.as_unit(w[2], x))
        elif op == "on_termination":
            f = lambda _: self.as_unit(w[2], None)
            lib.on_any(self.promise(w[1]), f, f)
        elif op == "async":
            lib.async_(self.thunk(w[1]))
        elif op == "dont_wait":
            lib.dont_wait(self.thunk(w[1]), lambda x: self.handler(w[2], x))
        elif op == "ignore_result":
            lib.ignore_result(self.promise(w[1]))
        elif op == "tick":
            lib.tick()
        elif op == "paused":
            self.emit("n %d" % lib.paused_count)
        elif op == "abandon":
            lib.abandon()
        elif op == "notify":
            lib.notifier = None if w[1] == "none" else self.notifier(w[1])
        elif op == "state":
            self.emit("s %s %s" % (w[1], self.state(self.promise(w[1]))))
        elif op == "get":
            self.emit("g %s %s" % (w[1], lib.storage.get(w[1], "none")))
        elif op == "call":
            self.body(w[1], None)
        else:
            raise SystemExit("bad statement " + " ".join(w))

    def handler(self, c, x):
        saved = self.lib.storage
        self.lib.storage = {}
        self.body(c, x)
        self.lib.storage = saved

    def notifier(self, c):
        def run(n):
            if not self.notifying:
                self.notifying = True
                self.body(c, n)
                self.notifying = False
        return run

    def make(self, n, op, args):
        lib = self.lib
        if op in ("wait", "task"):
            self.assign(n, lib.wait() if op == "wait" else lib.task())
            self.owned.add(n)
        elif op == "pause":
            self.assign(n, lib.pause())
        elif op == "return":
            self.assign(n, lib.result(OK, int(args[0])))
        elif op == "fail":
            self.assign(n, lib.result(ERR, error(args[0])))
        elif op == "bind":
            p = self.promise(args[0])
            self.assign(n, lib.call(
                lib.bind, p, lambda v: self.as_promise(args[1], v)))
        elif op == "map":
            p = self.promise(args[0])
            self.assign(n, lib.map(lambda v: self.as_value(args[1], v), p))
        elif op == "catch":
            f = self.thunk(args[0])
            self.assign(n, lib.call(
                lib.catch, f, lambda x: self.as_promise(args[1], x)))
        elif op == "try_bind":
            f = self.thunk(args[0])
            self.assign(n, lib.call(
                lib.try_bind, f, lambda v: self.as_promise(args[1], v),
                lambda x: self.as_promise(args[2], x)))
        elif op == "finalize":
            f = self.thunk(args[0])
            self.assign(n, lib.call(
                lib.finalize, f, lambda: self.as_promise(args[1], None)))
        elif op == "protected":
            self.assign(n, lib.protected(self.promise(args[0])))
        elif op == "no_cancel":
            self.assign(n, lib.no_cancel(self.promise(args[0])))
        elif op == "wrap":
            self.assign(n, lib.wrap(self.promise(args[0])))
        else:
            ps = [self.promise(a) for a in args]
            states = [under(p).state for p in ps]
            n_err, n_ok = states.count(ERR), states.count(OK)
            if op in ("choose", "pick") and (n_err > 1 or
                                             (n_err == 0 and n_ok > 1)):
                self.emit("amb")
            elif op == "choose":
                self.assign(n, lib.race(ps, False))
            elif op == "pick":
                self.assign(n, lib.race(ps, True))
            elif op == "join":
                self.assign(n, lib.gather(ps, lambda: UNIT))
            elif op == "both":
                vals = lib.values(ps)
                self.assign(n, lib.gather(ps, lambda: ("pair",) + tuple(vals())))
            elif op == "all":
                vals = lib.values(ps)
                self.assign(n, lib.gather(ps, lambda: ("list", vals())))
            elif op == "nchoose_split":
                def box(v):
                    where = [next(i for i, q in enumerate(ps) if q is p)
                             for p in v[1]]
                    return ("split", v[0], where)
                self.assign(n, lib.map(box, lib.nrace(ps, split=True)))
            else:
                q = lib.nrace(ps, cancel=op == "npick")
                self.assign(n, lib.map(lambda v: ("list", v), q))


# --------------------------------------------------------------------------

def cases(name):
    """Yields (id, script lines, trace lines or None)."""
    cid, script, trace = None, [], None
    for line in open(name):
        line = line.rstrip("\n")
        if line.startswith("@"):
            if cid is not None:
                yield cid, script, trace
            cid, script, trace = line[1:].strip(), [], None
        elif line == "%":
            trace = []
        elif trace is not None:
            trace.append(line)
        else:
            script.append(line)
    if cid is not None:
        yield cid, script, trace


def run(script):
    try:
        return Interp(script).run()
    except Discard as d:
        return ["DISCARD " + str(d)]


def main():
    args = sys.argv[1:]
    printing = "-p" in args
    coverage = "-c" in args
    n = bad = both = ours = theirs = 0
    why = Counter()
    for name in [a for a in args if a[0] != "-"]:
        for cid, script, trace in cases(name):
            n += 1
            got = run(script)
            if printing:
                print("\n".join(["@ " + cid] + script + ["%"] + got))
                continue
            if trace is None:
                continue
            d1 = got[-1].startswith("DISCARD")
            d2 = trace[-1:] and trace[-1].startswith("DISCARD")
            if d1 and d2:
                both += 1
                why["%s / %s" % (got[-1], trace[-1])] += 1
            elif d1 or d2:
                ours += d1
                theirs += bool(d2)
                print("case %s: model %s, oracle %s"
                      % (cid, got[-1], trace[-1] if trace else "nothing"))
            elif got != trace:
                bad += 1
                i = next((i for i, (a, b) in enumerate(zip(got, trace)) if a != b),
                         min(len(got), len(trace)))
                print("case %s differs at trace line %d: model %r, oracle %r"
                      % (cid, i + 1, got[i:i + 1], trace[i:i + 1]))
    if not printing:
        print("%d cases, %d differ, %d discarded by both, %d by the model only, "
              "%d by the oracle only" % (n, bad, both, ours, theirs))
        for k, v in sorted(why.items()):
            print("  %5d  %s" % (v, k))
    if coverage:
        for k, v in sorted(cover.items()):
            if not k.startswith("op ") or "-o" in args:
                print("  %7d  %s" % (v, k))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.setrecursionlimit(100000)
    threading.stack_size(512 * 1024 * 1024)
    code = []
    t = threading.Thread(target=lambda: code.append(main()))
    t.start()
    t.join()
    sys.exit(code[0] if code else 2)
