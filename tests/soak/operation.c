/* operation.c: one operation in every form, ended in every way. */
#include "soak.h"

#include "ring_internal.h"

#define FIRST(...) __VA_ARGS__ __VA_OPT__(, )
#define AFTER(...) __VA_OPT__(, ) __VA_ARGS__

enum form { DIRECT, AS_FIBER, AS_PROMISE, AS_BIND, RAW, FORMS };
enum ending { BY_ITSELF, AT_ONCE, BY_DEADLINE, BY_CANCEL, ENDINGS };

static const char *const forms[FORMS] = {"direct", "fiber", "promise", "bind", "raw"};
static const char *const endings[ENDINGS] = {"none", "at once", "deadline", "cancel"};
static const char *const names[] = {
#define NAME(name, arguments) [OP_##name] = #name,
    EACH_OPERATION(NAME) EACH_EXACT_OPERATION(NAME)[OP_poll] = "poll",
#undef NAME
};

void linger(struct random *r)
{
    switch (below(r, 6)) {
    case 0:
        for (unsigned i = below(r, 4); i > 0; i--)
            fiber_yield();
        break;
    case 1:
        fiber_nop(WEFT_FOREVER);
        break;
    case 2:
        fiber_sleep(below(r, 200000));
        break;
    case 3:
        fiber_yield();
        break;
    default:
        break;
    }
}

void disturb(struct random *r)
{
    static const int refusals[] = {-EINTR, -EBUSY, -EAGAIN, -ETIME};
    static const int results[] = {-EINTR, -EAGAIN, -EINTR, -EAGAIN, -ENOMEM, -ENOBUFS};
    struct ring__faults *faults = ring__faults(weft__rt);

    if (!one_in(r, 4))
        return;
    soak.disturbed++;
    switch (below(r, 5)) {
    case 0:
        faults->no_room = (int)below(r, 10);
        break;
    case 1:
        faults->no_watch = (int)below(r, 4);
        break;
    case 2:
        faults->enter = (int)below(r, 4);
        faults->enter_error = refusals[below(r, 4)];
        break;
    case 3:
        faults->result = (int)below(r, 3);
        faults->result_error = results[below(r, 6)];
        break;
    default:
        faults->short_io = (int)below(r, 5);
        break;
    }
}

bool is_passing(int res)
{
    return res == -ECANCELED || res == -ETIMEDOUT || res == -EINTR || res == -EAGAIN ||
           res == -ENOMEM || res == -ENOBUFS;
}

/* ---- the forms ---- */

static int exact_result(const struct operation *op, int rc)
{
    return op->what > OP_exact ? (op->moved > 0 ? (int)op->moved : rc) : rc;
}

static int direct(struct operation *op)
{
    switch (op->what) {
#define CALL(name, arguments) \
    case OP_##name:           \
        return exact_result(op, fiber_##name(FIRST arguments op->deadline));
        EACH_OPERATION(CALL)
        EACH_EXACT_OPERATION(CALL)
#undef CALL
    case OP_poll:
        return fiber_poll(op->fd, (short)op->flags, op->deadline);
    default:
        abort();
    }
}

struct promise *as_promise(struct operation *op)
{
    switch (op->what) {
#define CALL(name, arguments) \
    case OP_##name:           \
        return promise_##name(FIRST arguments op->deadline);
        EACH_OPERATION(CALL)
        EACH_EXACT_OPERATION(CALL)
#undef CALL
    case OP_poll:
        return promise_poll_fd(op->fd, (short)op->flags, op->deadline);
    default:
        abort();
    }
}

static int submit(struct operation *op, struct ring_op *raw)
{
    switch (op->what) {
#define CALL(name, arguments) \
    case OP_##name:           \
        return ring_##name(raw AFTER arguments);
        EACH_OPERATION(CALL)
#undef CALL
    case OP_poll:
        return ring_poll(raw, op->fd, (short)op->flags);
    default:
        abort();
    }
}

static int wait_for(void *arg)
{
    void **args = arg;

    return fiber_await(args[0], args[1], WEFT_FOREVER);
}

int await_shielded(struct promise *promise, union weft_value *value)
{
    void *args[2] = {promise, value};

    return fiber_shield(wait_for, args);
}

/* Until it has settled, and cancels it if the caller is cancelled. Consumes it. */
static int settle(struct random *r, struct promise *p, enum ending ending, union weft_value *value)
{
    value->num = 0;
    if (ending == BY_CANCEL) {
        linger(r);
        promise_cancel(p);
        if (one_in(r, 8))
            promise_cancel(p);
    }
    fiber_await(promise_ref(p), NULL, WEFT_FOREVER);
    promise_cancel(p); /* in vain, unless the caller is cancelled */
    return await_shielded(p, value);
}

static int64_t run_direct(void *arg)
{
    struct operation *op = arg;

    op->result = direct(op);
    op->ended = true;
    return 0;
}

static int perform_as_fiber(struct random *r, struct operation *op, enum ending ending)
{
    union weft_value value;
    int rc = settle(r, fiber_spawn(run_direct, op), ending, &value);

    return op->ended ? op->result : rc;
}

static int perform_as_promise(struct random *r, struct operation *op, enum ending ending)
{
    union weft_value value;
    int rc = settle(r, as_promise(op), ending, &value);

    return exact_result(op, rc < 0 ? rc : (int)value.num);
}

/* Through callbacks: the result goes by way of two more promises. */
static int keep_value(union weft_value in, void *arg, union weft_value *out)
{
    struct operation *op = arg;

    op->ended = true;
    op->result = (int)in.num;
    *out = in;
    return 0;
}

static struct promise *keep_error(int error, void *arg)
{
    struct operation *op = arg;

    op->ended = true;
    op->result = error;
    return promise_rejected(error);
}

static int perform_as_bind(struct random *r, struct operation *op, enum ending ending)
{
    union weft_value value;
    struct promise *p = promise_catch(promise_map(as_promise(op), keep_value, op), keep_error, op);

    settle(r, p, ending, &value);
    CHECK(op->ended, "%s: settled, and no callback was called", names[op->what]);
    return exact_result(op, op->result);
}

struct raw {
    struct ring_op op;
    struct operation *operation;
    struct promise *over;
};

static void raw_done(struct ring_op *op, int res, unsigned flags)
{
    struct raw *raw = weft__container(op, struct raw, op);

    CHECK(flags == 0 && !raw->operation->ended, "done() is called once, with no flags");
    raw->operation->ended = true;
    raw->operation->result = res;
    promise_resolve(raw->over, weft_num(0));
}

static int perform_raw(struct random *r, struct operation *op, enum ending ending)
{
    struct raw raw = {.operation = op, .over = promise_create()};
    int rc;

    memset(&raw.op, 0xa5, sizeof raw.op);
    raw.op.done = raw_done;
    rc = submit(op, &raw.op);
    if (rc < 0) {
        promise_unref(raw.over);
        return rc;
    }
    if (ending == BY_DEADLINE)
        fiber_sleep_until(op->deadline);
    if (ending == BY_CANCEL)
        linger(r);
    if (ending != BY_ITSELF && !op->ended)
        ring_cancel(&raw.op);
    fiber_await(promise_ref(raw.over), NULL, WEFT_FOREVER);
    if (!op->ended)
        ring_cancel(&raw.op);
    await_shielded(raw.over, NULL);
    return op->result;
}

/* ---- one of them ---- */

/* For these EAGAIN is the file's own answer, and told. */
static bool waits(enum what what)
{
    return what != OP_openat && what != OP_socket && what != OP_statx && what != OP_fsync &&
           what != OP_shutdown && what != OP_poll && what != OP_nop && what != OP_socketpair &&
           what != OP_pipe && what != OP_ftruncate;
}

/* Errors that need no reason but the fault that makes them, and those that need one. */
static bool is_allowed(const struct operation *op, enum form form, enum ending ending, int res)
{
    bool cancelled = ending == BY_CANCEL || fiber_check() < 0 || weft_stopping() ||
                     (op->closed != NULL && *op->closed);
    bool late = ending == AT_ONCE || ending == BY_DEADLINE;

    switch (res) {
    case -ECANCELED:
        return cancelled || (form == RAW && late);
    case -ETIMEDOUT:
        return late && form != RAW;
    case -EINTR:
        return false;
    case -EAGAIN:
        return op->flags & MSG_DONTWAIT || !waits(op->what) || op->what == OP_connect;
    case -EBADF:
        return op->closed != NULL && *op->closed;
    case -ENOMEM:
    case -ENOBUFS:
        return true;
    default: /* the file's own, which who asked must expect */
        return true;
    }
}

int perform(struct random *r, struct operation *op)
{
    enum form form = (enum form)below(r, FORMS);
    enum ending ending = (enum ending)(op->certain ? below(r, 4) : 1 + below(r, 3));
    int res;

    if (form == DIRECT && ending == BY_CANCEL)
        form = AS_FIBER;
    if (form == RAW && op->what > OP_exact)
        form = AS_PROMISE;
    op->ended = false;
    op->moved = 0;
    op->deadline = ending == AT_ONCE       ? WEFT_NOWAIT
                   : ending == BY_DEADLINE ? weft_after(below(r, 400) * 1000)
                                           : WEFT_FOREVER;
    snprintf(op->text, sizeof op->text, "%s of %zu as %s, ended by %s%s", names[op->what], op->len,
             forms[form], endings[ending], op->certain ? ", certain" : "");
    disturb(r);
    count_operation();
    switch (form) {
    case DIRECT:
        res = direct(op);
        break;
    case AS_FIBER:
        res = perform_as_fiber(r, op, ending);
        break;
    case AS_PROMISE:
        res = perform_as_promise(r, op, ending);
        break;
    case AS_BIND:
        res = perform_as_bind(r, op, ending);
        break;
    default:
        res = perform_raw(r, op, ending);
        break;
    }
    snprintf(op->text, sizeof op->text, "%s of %zu as %s, ended by %s%s: %d", names[op->what],
             op->len, forms[form], endings[ending],
             fiber_check() < 0 ? ", in a cancelled fiber" : "", res);
    soak.ended[res >= 0 ? 0 : res == -ETIMEDOUT ? 1 : res == -ECANCELED ? 2 : 3]++;
    CHECK(is_allowed(op, form, ending, res), "on %d: %s (%s)", op->fd, op->text,
          res < 0 ? strerror(-res) : "");
    return res;
}

void close_somehow(struct random *r, int fd)
{
    int rc;

    if (fd < 0)
        return;
    count_operation();
    if (one_in(r, 2)) {
        rc = fiber_close(fd);
    } else {
        rc = await_shielded(promise_close(fd), NULL);
    }
    CHECK(rc == 0, "close of %d: %d", fd, rc);
}
