/* promise_script: runs promise scripts (tests/oracle/GRAMMAR.md) and prints their traces.
 *
 *     promise_script [--fiber] [--quiet] FILE...
 *
 * Prints every case of the files with its script and its trace. With --fiber the top level of each
 * script runs in a fiber, else as a callback on the base stack; the traces must be the same. After
 * each case all handles are dropped, and then no block may be left: leaks are reported on stderr.
 * --quiet compares with the trace in the file instead, and prints the cases that differ. Exit
 * status: 0, 1 a leak or (--quiet) a difference, 2 cannot run.
 *
 * Payloads, contexts and tokens live in one arena that is emptied after each case.
 */
#include <weft/promise.h>
#include <weft/runtime.h>

#include "promise_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FUEL       3000
#define PROMISES   1000
#define CALLBACKS  1000
#define ERROR_BASE 100000 /* E<n> is -(ERROR_BASE + n) */

/* ---- memory and output ---- */

struct chunk {
    struct chunk *next;
};

static struct chunk *arena;

static void *allocate(size_t size)
{
    struct chunk *chunk = calloc(1, sizeof *chunk + 8 + size);

    if (chunk == NULL) {
        fputs("promise_script: out of memory\n", stderr);
        exit(2);
    }
    chunk->next = arena;
    arena = chunk;
    return (char *)(chunk + 1) + 8;
}

static void empty_arena(void)
{
    while (arena != NULL) {
        struct chunk *next = arena->next;

        free(arena);
        arena = next;
    }
}

static char *out;
static size_t out_used, out_size;

static __attribute__((format(printf, 1, 2))) void put(const char *format, ...)
{
    va_list args;
    int n;

    for (;;) {
        va_start(args, format);
        n = vsnprintf(out + out_used, out_size - out_used, format, args);
        va_end(args);
        if ((size_t)n < out_size - out_used)
            break;
        out_size = out_size * 2 + (size_t)n;
        out = realloc(out, out_size);
        if (out == NULL)
            exit(2);
    }
    out_used += (size_t)n;
}

/* Shows where a crash happened. */
static void on_crash(int signal_number)
{
    ssize_t ignored = write(STDOUT_FILENO, out, out_used);

    (void)ignored;
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* ---- payloads ---- */

enum payload_kind { INTEGER, UNIT, LIST, PAIR, SPLIT };

struct payload {
    enum payload_kind kind;
    int64_t number;
    size_t count;
    struct payload **items;
    size_t position_count;
    size_t *positions;
};

static struct payload unit = {.kind = UNIT};

static struct payload *integer(int64_t number)
{
    struct payload *p = allocate(sizeof *p);

    p->number = number;
    return p;
}

/* join, pause: 0 stands for unit. */
static struct payload *payload_of(union weft_value value)
{
    return value.ptr == NULL ? &unit : value.ptr;
}

static void put_payload(const struct payload *p)
{
    switch (p->kind) {
    case INTEGER:
        put("%lld", (long long)p->number);
        return;
    case UNIT:
        put("()");
        return;
    default:
        break;
    }
    put(p->kind == LIST ? "[" : p->kind == PAIR ? "(" : "<");
    for (size_t i = 0; i < p->count; i++) {
        if (i > 0)
            put(",");
        put_payload(p->items[i]);
    }
    if (p->kind == SPLIT) {
        put("|");
        for (size_t i = 0; i < p->position_count; i++)
            put("%s%zu", i > 0 ? "," : "", p->positions[i]);
    }
    put(p->kind == LIST ? "]" : p->kind == PAIR ? ")" : ">");
}

static int error_named(const char *name)
{
    return strcmp(name, "Canceled") == 0 ? -ECANCELED : -(ERROR_BASE + atoi(name + 1));
}

static void put_error(int err)
{
    if (err == -ECANCELED)
        put("Canceled");
    else if (err == -EALREADY || err == -EINVAL)
        put("Invalid");
    else if (err <= -ERROR_BASE)
        put("E%d", -err - ERROR_BASE);
    else
        put("errno%d", -err);
}

/* ---- the script ---- */

struct words {
    char **word;
    size_t count;
};

struct callback {
    bool defined;
    struct words *statement;
    size_t count;
    struct words result;
};

static struct callback callbacks[CALLBACKS];
static struct words *top;
static size_t top_count;

static struct promise *variables[PROMISES];
static bool resolvers[PROMISES];
static char *shown[PROMISES]; /* the state last printed */
static int fuel;
static bool notifying;
static const struct weft_key keys[2] = {{.name = "k1"}, {.name = "k2"}};

/* What a callback's function gets: the numbers of the script's callbacks. */
struct context {
    unsigned first, second;
};

static struct context *context(unsigned first, unsigned second)
{
    struct context *c = allocate(sizeof *c);

    c->first = first;
    c->second = second;
    return c;
}

static unsigned number_of(const char *word)
{
    unsigned n = (unsigned)atoi(word + 1);

    if (n >= PROMISES) {
        fprintf(stderr, "promise_script: number too large: %s\n", word);
        exit(2);
    }
    return n;
}

static void put_state(struct promise *p)
{
    union weft_value value;
    int err;

    switch (promise_poll(p, &value, &err)) {
    case PROMISE_PENDING:
        put("?");
        break;
    case PROMISE_FULFILLED:
        put_payload(payload_of(value));
        break;
    case PROMISE_REJECTED:
        put("!");
        put_error(err);
        break;
    }
}

/* Prints `p`'s state, and returns a copy of what was printed. */
static char *put_and_keep(struct promise *p)
{
    size_t from = out_used;
    char *copy;

    put_state(p);
    copy = allocate(out_used - from + 1);
    memcpy(copy, out + from, out_used - from);
    return copy;
}

static void execute(const struct words *words, size_t from);

/* ---- running a script's callback ---- */

static const struct words *run_callback(unsigned c, const struct payload *value, int err)
{
    const struct callback *callback = &callbacks[c];

    put(">c%u ", c);
    if (value != NULL) {
        put_payload(value);
    } else if (err < 0) {
        put("!");
        put_error(err);
    } else {
        put("-");
    }
    put("\n");
    for (size_t i = 0; i < callback->count; i++)
        execute(&callback->statement[i], 0);
    put("<c%u\n", c);
    return &callback->result;
}

static struct promise *as_promise(unsigned c, struct payload *value, int err)
{
    const struct words *result = run_callback(c, value, err);
    const char *kind = result->word[0];

    if (strcmp(kind, "ret") == 0)
        return promise_fulfilled(weft_ptr(integer(atoll(result->word[1]))));
    if (strcmp(kind, "arg") == 0) {
        if (err < 0)
            return promise_rejected(err);
        if (value != NULL)
            return promise_fulfilled(value == &unit ? weft_num(0) : weft_ptr(value));
    } else if (strcmp(kind, "promise") == 0) {
        struct promise *p = variables[number_of(result->word[1])];

        if (p != NULL)
            return promise_ref(p);
    } else {
        return promise_rejected(error_named(result->word[1]));
    }
    return promise_fulfilled(weft_ptr(integer(0)));
}

static int as_value(unsigned c, struct payload *value, struct payload **result)
{
    const struct words *words = run_callback(c, value, 0);
    const char *kind = words->word[0];

    *result = NULL;
    if (strcmp(kind, "ret") == 0)
        *result = integer(atoll(words->word[1]));
    else if (strcmp(kind, "arg") == 0)
        *result = value;
    else if (strcmp(kind, "promise") != 0)
        return error_named(words->word[1]);
    if (*result == NULL)
        *result = integer(0);
    return 0;
}

static int as_nothing(unsigned c, struct payload *value, int err)
{
    const struct words *words = run_callback(c, value, err);

    return strcmp(words->word[0], "raise") == 0 ? error_named(words->word[1]) : 0;
}

static struct promise *on_bind(union weft_value value, void *ctx)
{
    return as_promise(((struct context *)ctx)->first, payload_of(value), 0);
}

static int on_map(union weft_value value, void *ctx, union weft_value *result)
{
    struct payload *payload;
    int rc = as_value(((struct context *)ctx)->first, payload_of(value), &payload);

    *result = payload == &unit ? weft_num(0) : weft_ptr(payload);
    return rc;
}

static struct promise *on_error(int err, void *ctx)
{
    return as_promise(((struct context *)ctx)->second, NULL, err);
}

static struct promise *on_thunk(void *ctx)
{
    return as_promise(((struct context *)ctx)->first, NULL, 0);
}

static int on_success(union weft_value value, void *ctx)
{
    return as_nothing(((struct context *)ctx)->first, payload_of(value), 0);
}

static int on_failure(int err, void *ctx)
{
    return as_nothing(((struct context *)ctx)->second, NULL, err);
}

static int on_done(void *ctx)
{
    return as_nothing(((struct context *)ctx)->first, NULL, 0);
}

static void on_hook(int err, void *ctx)
{
    (void)ctx;
    put("hook ");
    put_error(err);
    put("\n");
}

struct handled {
    unsigned c;
    int err;
};

static void handle_innermost(void *ctx)
{
    struct handled *h = ctx;

    run_callback(h->c, NULL, h->err);
}

static void handle_without_k2(void *ctx)
{
    promise_with_value(&keys[1], NULL, handle_innermost, ctx);
}

static void on_dont_wait(int err, void *ctx)
{
    struct handled h = {((struct context *)ctx)->second, err};

    promise_with_value(&keys[0], NULL, handle_without_k2, &h);
}

static void on_pause(size_t count, void *ctx)
{
    if (notifying)
        return;
    notifying = true;
    run_callback(((struct context *)ctx)->first, integer((int64_t)count), 0);
    notifying = false;
}

/* ---- several promises ---- */

static struct payload *items_of(const struct promise_values *values, enum payload_kind kind)
{
    struct payload *p = allocate(sizeof *p);

    p->kind = kind;
    p->count = values->count;
    p->items = allocate(values->count * sizeof *p->items);
    for (size_t i = 0; i < values->count; i++)
        p->items[i] = payload_of(values->value[i]);
    return p;
}

static int make_list(union weft_value value, void *ctx, union weft_value *result)
{
    (void)ctx;
    *result = weft_ptr(items_of(value.ptr, LIST));
    promise_values_destroy(value.ptr);
    return 0;
}

static int make_pair(union weft_value value, void *ctx, union weft_value *result)
{
    (void)ctx;
    *result = weft_ptr(items_of(value.ptr, PAIR));
    promise_values_destroy(value.ptr);
    return 0;
}

struct operands {
    struct promise **promise;
    size_t count;
};

static int make_split(union weft_value value, void *ctx, union weft_value *result)
{
    const struct promise_split *split = value.ptr;
    const struct operands *operands = ctx;
    struct payload *p = items_of(&split->values, SPLIT);

    p->position_count = split->pending_count;
    p->positions = allocate(split->pending_count * sizeof *p->positions);
    for (size_t i = 0; i < split->pending_count; i++)
        while (operands->promise[p->positions[i]] != split->pending[i])
            p->positions[i]++;
    *result = weft_ptr(p);
    promise_split_destroy(value.ptr);
    return 0;
}

/* ---- statements ---- */

static void assign(unsigned n, struct promise *p)
{
    struct promise *old = variables[n];

    variables[n] = p;
    resolvers[n] = false;
    put("=p%u ", n);
    shown[n] = put_and_keep(p);
    put("\n");
    promise_unref(old);
}

/* A reference on the promise that F names; NULL: unset. */
static struct promise *thunk(const char *word)
{
    if (word[0] == 'p')
        return promise_ref(variables[number_of(word)]);
    return promise_call(on_thunk, context(number_of(word), 0));
}

static bool is_set(const char *word)
{
    return word[0] != 'p' || variables[number_of(word)] != NULL;
}

static void complain(int err)
{
    put("! ");
    put_error(err);
    put("\n");
}

static void make_many(unsigned n, const char *op, char **names, size_t count)
{
    struct operands *operands = allocate(sizeof *operands);
    size_t rejected = 0, fulfilled = 0;
    struct promise *p;

    operands->count = count;
    operands->promise = allocate((count + 1) * sizeof(struct promise *));
    for (size_t i = 0; i < count; i++) {
        operands->promise[i] = variables[number_of(names[i])];
        rejected += promise_state(operands->promise[i]) == PROMISE_REJECTED;
        fulfilled += promise_state(operands->promise[i]) == PROMISE_FULFILLED;
    }
    if ((strcmp(op, "choose") == 0 || strcmp(op, "pick") == 0) &&
        (rejected > 1 || (rejected == 0 && fulfilled > 1))) {
        put("amb\n");
        return;
    }
    for (size_t i = 0; i < count; i++)
        promise_ref(operands->promise[i]);
    if (strcmp(op, "join") == 0)
        p = promise_join(operands->promise, count);
    else if (strcmp(op, "all") == 0)
        p = promise_map(promise_all(operands->promise, count), make_list, NULL);
    else if (strcmp(op, "both") == 0)
        p = promise_map(promise_both(operands->promise[0], operands->promise[1]), make_pair, NULL);
    else if (strcmp(op, "choose") == 0)
        p = promise_choose(operands->promise, count);
    else if (strcmp(op, "pick") == 0)
        p = promise_pick(operands->promise, count);
    else if (strcmp(op, "nchoose") == 0)
        p = promise_map(promise_nchoose(operands->promise, count), make_list, NULL);
    else if (strcmp(op, "npick") == 0)
        p = promise_map(promise_npick(operands->promise, count), make_list, NULL);
    else
        p = promise_map(promise_nchoose_split(operands->promise, count), make_split, operands);
    if (count == 0 && strcmp(op, "join") != 0 && strcmp(op, "all") != 0) {
        int err = 0;

        promise_poll(p, NULL, &err);
        promise_unref(p);
        complain(err);
        return;
    }
    assign(n, p);
}

static void make(unsigned n, const char *op, char **args, size_t count)
{
    struct promise *p;

    if (strcmp(op, "wait") == 0 || strcmp(op, "task") == 0) {
        assign(n, op[0] == 'w' ? promise_create() : promise_create_task());
        resolvers[n] = true;
        return;
    }
    if (strcmp(op, "return") != 0 && strcmp(op, "fail") != 0)
        for (size_t i = 0; i < count; i++)
            if (!is_set(args[i])) {
                put("skip\n");
                return;
            }
    if (strcmp(op, "pause") == 0) {
        p = promise_pause();
    } else if (strcmp(op, "return") == 0) {
        p = promise_fulfilled(weft_ptr(integer(atoll(args[0]))));
    } else if (strcmp(op, "fail") == 0) {
        p = promise_rejected(error_named(args[0]));
    } else if (strcmp(op, "bind") == 0) {
        p = promise_bind(thunk(args[0]), on_bind, context(number_of(args[1]), 0));
    } else if (strcmp(op, "map") == 0) {
        p = promise_map(thunk(args[0]), on_map, context(number_of(args[1]), 0));
    } else if (strcmp(op, "catch") == 0) {
        p = promise_catch(thunk(args[0]), on_error, context(0, number_of(args[1])));
    } else if (strcmp(op, "try_bind") == 0) {
        p = promise_try_bind(thunk(args[0]), on_bind, on_error,
                             context(number_of(args[1]), number_of(args[2])));
    } else if (strcmp(op, "finalize") == 0) {
        p = promise_finalize(thunk(args[0]), on_thunk, context(number_of(args[1]), 0));
    } else if (strcmp(op, "protected") == 0) {
        p = promise_protected(thunk(args[0]));
    } else if (strcmp(op, "no_cancel") == 0) {
        p = promise_no_cancel(thunk(args[0]));
    } else if (strcmp(op, "wrap") == 0) {
        p = promise_wrap_in_cancelable(thunk(args[0]));
    } else {
        make_many(n, op, args, count);
        return;
    }
    assign(n, p);
}

static void settle(char **word)
{
    unsigned n = number_of(word[1]);
    bool error = strstr(word[0], "_exn") != NULL, later = strstr(word[0], "later") != NULL;
    int rc;

    if (variables[n] == NULL || !resolvers[n]) {
        put("skip\n");
        return;
    }
    if (error)
        rc = (later ? promise_reject_later : promise_reject)(variables[n], error_named(word[2]));
    else
        rc = (later ? promise_resolve_later : promise_resolve)(variables[n],
                                                               weft_ptr(integer(atoll(word[2]))));
    if (rc < 0)
        complain(rc);
}

struct nested {
    const struct words *words;
    size_t from;
};

static void execute_nested(void *ctx)
{
    struct nested *nested = ctx;

    execute(nested->words, nested->from);
}

static void attach(char **word)
{
    struct promise *p = variables[number_of(word[1])];
    const char *op = word[0];

    if (strcmp(op, "on_cancel") == 0)
        promise_on_cancel(p, on_done, context(number_of(word[2]), 0));
    else if (strcmp(op, "on_success") == 0)
        promise_on_success(p, on_success, context(number_of(word[2]), 0));
    else if (strcmp(op, "on_failure") == 0)
        promise_on_failure(p, on_failure, context(0, number_of(word[2])));
    else if (strcmp(op, "on_termination") == 0)
        promise_on_termination(p, on_done, context(number_of(word[2]), 0));
    else
        promise_on_any(p, on_success, on_failure, context(number_of(word[2]), number_of(word[3])));
}

static void statement(const struct words *words, size_t from)
{
    char **word = words->word + from;
    size_t count = words->count - from;
    const char *op = word[0];

    if (count > 2 && strcmp(word[1], "=") == 0) {
        make(number_of(op), word[2], word + 3, count - 3);
    } else if (strcmp(op, "with") == 0) {
        struct nested nested = {words, from + 4};
        struct payload *value = strcmp(word[2], "none") == 0 ? NULL : integer(atoll(word[2]));

        promise_with_value(&keys[word[1][1] - '1'], value, execute_nested, &nested);
    } else if (strcmp(op, "repeat") == 0) {
        for (int i = 0, n = atoi(word[1]); i < n; i++)
            execute(words, from + 3);
    } else if (strncmp(op, "wakeup", 6) == 0) {
        settle(word);
    } else if (strcmp(op, "tick") == 0) {
        promise_wakeup_paused();
    } else if (strcmp(op, "paused") == 0) {
        put("n %zu\n", promise_paused_count());
    } else if (strcmp(op, "abandon") == 0) {
        promise_abandon_paused();
    } else if (strcmp(op, "notify") == 0) {
        if (strcmp(word[1], "none") == 0)
            promise_set_pause_notifier(NULL, NULL);
        else
            promise_set_pause_notifier(on_pause, context(number_of(word[1]), 0));
    } else if (strcmp(op, "get") == 0) {
        struct payload *value = weft_get(&keys[word[1][1] - '1']);

        put("g %s ", word[1]);
        if (value == NULL)
            put("none");
        else
            put_payload(value);
        put("\n");
    } else if (strcmp(op, "call") == 0) {
        run_callback(number_of(word[1]), NULL, 0);
    } else if (!is_set(word[1])) {
        put("skip\n");
    } else if (strcmp(op, "state") == 0) {
        put("s %s ", word[1]);
        put_state(variables[number_of(word[1])]);
        put("\n");
    } else if (strcmp(op, "cancel") == 0) {
        promise_cancel(variables[number_of(word[1])]);
    } else if (strcmp(op, "async") == 0) {
        promise_async(thunk(word[1]));
    } else if (strcmp(op, "dont_wait") == 0) {
        promise_dont_wait(thunk(word[1]), on_dont_wait, context(0, number_of(word[2])));
    } else if (strcmp(op, "ignore_result") == 0) {
        int err = promise_ignore_result(thunk(word[1]));

        if (err < 0)
            complain(err);
    } else {
        attach(word);
    }
}

static void execute(const struct words *words, size_t from)
{
    if (fuel <= 0)
        return;
    fuel--;
    statement(words, from);
}

static void show_changes(void)
{
    bool any = false;

    for (unsigned n = 0; n < PROMISES; n++) {
        size_t before = out_used, start;
        char *now;

        if (variables[n] == NULL)
            continue;
        if (!any)
            put(".");
        put(" p%u=", n);
        start = out_used;
        now = put_and_keep(variables[n]);
        (void)start;
        if (strcmp(now, shown[n]) == 0) {
            out_used = before;
        } else {
            any = true;
            shown[n] = now;
        }
    }
    if (any)
        put("\n");
}

static void run_script(void)
{
    for (size_t i = 0; i < top_count && fuel > 0; i++) {
        put("#%zu\n", i + 1);
        execute(&top[i], 0);
        show_changes();
    }
    put("end\n");
}

/* ---- parsing ---- */

static struct words split(const char *text, size_t length)
{
    struct words words = {allocate((length / 2 + 2) * sizeof(char *)), 0};
    char *copy = allocate(length + 1), *save = NULL;

    memcpy(copy, text, length);
    for (char *word = strtok_r(copy, " \t", &save); word != NULL;
         word = strtok_r(NULL, " \t", &save))
        words.word[words.count++] = word;
    return words;
}

static void define(const char *line)
{
    const char *equals = strchr(line, '=');
    unsigned n = number_of(strchr(line, 'c') + 3);
    struct callback *callback = &callbacks[n];
    const char *from = equals + 1;
    size_t parts = 1;

    for (const char *s = from; (s = strchr(s, ';')) != NULL; s++)
        parts++;
    callback->defined = true;
    callback->count = 0;
    callback->statement = allocate(parts * sizeof(struct words));
    for (;;) {
        const char *end = strchr(from, ';');

        if (end == NULL)
            break;
        callback->statement[callback->count++] = split(from, (size_t)(end - from));
        from = end + 1;
    }
    callback->result = split(from, strlen(from));
}

static void parse(char **line, size_t count)
{
    top = allocate(count * sizeof *top + 1);
    top_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct words words = split(line[i], strlen(line[i]));

        if (words.count == 0 || words.word[0][0] == '#')
            continue;
        if (strcmp(words.word[0], "cb") == 0)
            define(line[i]);
        else
            top[top_count++] = words;
    }
}

/* ---- cases ---- */

static struct {
    bool fiber, quiet;
    char **name;
    int names;
    size_t cases, differ, leaks, collected;
} run;

static void reset(void)
{
    struct promise__state *st = promise__tls;

    promise_abandon_paused();
    promise_set_pause_notifier(NULL, NULL);
    for (unsigned n = 0; n < PROMISES; n++) {
        promise_unref(variables[n]);
        variables[n] = NULL;
        resolvers[n] = false;
        shown[n] = NULL;
    }
    memset(callbacks, 0, sizeof callbacks);
    notifying = false;
    fuel = FUEL;
    if (st != NULL)
        run.collected += promise__collect(st);
}

static void run_case(const char *id, char **line, size_t count, char **expected,
                     size_t expected_count)
{
    size_t live, start;

    out_used = 0;
    put("@ %s\n", id);
    for (size_t i = 0; i < count; i++)
        put("%s\n", line[i]);
    put("%%\n");
    start = out_used;
    fuel = FUEL;
    promise_set_error_hook(on_hook, NULL);
    parse(line, count);
    run_script();
    reset();
    live = promise__live();
    if (live > 0) {
        fprintf(stderr, "promise_script: %s: %zu blocks left\n", id, live);
        run.leaks++;
    }
    run.cases++;
    if (run.quiet) {
        const char *got = out + start;
        bool same = true, discarded = expected_count > 0 && strncmp(expected[0], "DISCARD", 7) == 0;

        for (size_t i = 0; same && i < expected_count; i++) {
            size_t length = strlen(expected[i]);

            same = strncmp(got, expected[i], length) == 0 && got[length] == '\n';
            if (!same && !discarded)
                printf("%s: trace line %zu: expected \"%s\", got \"%.*s\"\n", id, i + 1,
                       expected[i], (int)strcspn(got, "\n"), got);
            got += length + 1;
        }
        run.differ += !same && !discarded;
    } else {
        fwrite(out, 1, out_used, stdout);
    }
    empty_arena();
}

static char *read_file(const char *name)
{
    FILE *file = fopen(name, "rb");
    char *text = NULL;
    size_t used = 0, got;

    if (file == NULL) {
        fprintf(stderr, "promise_script: %s: %s\n", name, strerror(errno));
        exit(2);
    }
    do {
        text = realloc(text, used + 65537);
        if (text == NULL)
            exit(2);
        got = fread(text + used, 1, 65536, file);
        used += got;
    } while (got > 0);
    text[used] = '\0';
    fclose(file);
    return text;
}

static void run_file(const char *name)
{
    char *text = read_file(name), *save = text, **line, *id = NULL;
    size_t lines = 1, count = 0, expected = 0;
    bool in_trace = false;

    for (const char *s = text; (s = strchr(s, '\n')) != NULL; s++)
        lines++;
    line = malloc(lines * sizeof *line); /* a case's script, then its trace */
    if (line == NULL)
        exit(2);
    for (char *next; save != NULL && *save != '\0'; save = next) {
        next = strchr(save, '\n');
        if (next != NULL)
            *next++ = '\0';
        if (save[0] == '@') {
            if (id != NULL)
                run_case(id, line, count, line + count, expected);
            id = save + 1 + strspn(save + 1, " ");
            count = expected = 0;
            in_trace = false;
        } else if (strcmp(save, "%") == 0) {
            in_trace = true;
        } else if (in_trace) {
            line[count + expected++] = save;
        } else {
            line[count++] = save;
        }
    }
    if (id != NULL)
        run_case(id, line, count, line + count, expected);
    free(line);
    free(text);
}

static int run_all(void *arg)
{
    (void)arg;
    for (int i = 0; i < run.names; i++)
        run_file(run.name[i]);
    return 0;
}

static struct promise *run_all_as_promise(void *arg)
{
    return promise_from_result(run_all(arg));
}

int main(int argc, char **argv)
{
    int rc;

    run.name = argv + 1;
    for (run.names = argc - 1; run.names > 0 && run.name[0][0] == '-'; run.name++, run.names--) {
        if (strcmp(run.name[0], "--fiber") == 0) {
            run.fiber = true;
        } else if (strcmp(run.name[0], "--quiet") == 0) {
            run.quiet = true;
        } else {
            break;
        }
    }
    if (run.names == 0 || run.name[0][0] == '-') {
        fputs("usage: promise_script [--fiber] [--quiet] FILE...\n", stderr);
        return 2;
    }
    if (run.fiber && !WEFT_HAS_FIBERS) {
        fputs("promise_script: --fiber is not available in a build without fibers\n", stderr);
        return 2;
    }
    out_size = 65536;
    out = malloc(out_size);
    if (out == NULL)
        return 2;
    signal(SIGSEGV, on_crash);
    rc = run.fiber ? weft_run(run_all, NULL, NULL)
                   : promise_run(run_all_as_promise, NULL, NULL, NULL);
    free(out);
    if (rc < 0) {
        fprintf(stderr, "promise_script: cannot run: %s\n", strerror(-rc));
        return 2;
    }
    if (run.quiet)
        printf("%zu cases, %zu differ, %zu leak; %zu blocks freed by tracing\n", run.cases,
               run.differ, run.leaks, run.collected);
    return run.leaks > 0 || run.differ > 0;
}
