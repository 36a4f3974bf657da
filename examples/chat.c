/* needs: fibers
 * chat.c: a chat server with rooms. Talk to it with `nc localhost 8080`: the first line is your name,
 * each further one is said to all in the room.
 *
 *     /join ROOM   go to another room
 *     /who         who is here
 *     /quit        leave
 *
 * Each client is two fibers: one reads what it says, the other writes what it is told, from a channel
 * of its own. Each room is a fiber with a channel too, into which its members send. So everybody hears
 * everything in one order; whoever says more than the room can take waits for the room; and the room
 * waits for nobody: a client that doesn't read what it is told, until its channel is full, is dropped.
 */
#include "program.h"

enum { NAME_MAX_BYTES = 24, LINE_MAX_BYTES = 1000, ROOM_BACKLOG = 8 };

/* ---- what is said ---------------------------------------------------------------------------- */

/* One text, in as many channels as it goes to. */
struct message {
    unsigned refs;
    int length;
    unsigned long from; /* who needs no telling; 0: nobody */
    char text[];
};

struct chat {
    struct program program;
    struct weft_server server;
    struct fiber_scope scope; /* of the rooms */
    struct room *rooms;
    struct member *members;
    long backlog, write_ms, idle_ms, drain_ms;
    unsigned long said, dropped, numbers;
};

struct room {
    struct chat *chat;
    struct room *next, **link;
    char name[NAME_MAX_BYTES + 1];
    struct weft_channel *said;
    struct member *members;
    unsigned users; /* the members, and those who are about to be through with it */
};

struct member {
    struct chat *chat;
    struct member *next, **link;                /* of the chat */
    struct member *neighbour, **neighbour_link; /* in the room */
    struct room *room;                          /* NULL: in none yet */
    int fd;
    unsigned long number; /* from 1 */
    bool dropped;
    char name[NAME_MAX_BYTES + 1];
    struct weft_channel *told;
};

static void forget(void *message)
{
    struct message *m = message;

    if (--m->refs == 0)
        free(m);
}

/* One reference, the caller's; NULL without memory. */
static __attribute__((format(printf, 2, 3))) struct message *make(unsigned long from,
                                                                  const char *format, ...)
{
    char text[LINE_MAX_BYTES + NAME_MAX_BYTES + 64];
    struct message *m;
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    m = malloc(sizeof *m + (size_t)length + 1);
    if (m == NULL)
        return NULL;
    memcpy(m->text, text, (size_t)length + 1);
    m->length = length;
    m->refs = 1;
    m->from = from;
    return m;
}

/* Puts a message, which is borrowed, where the member's writer finds it; never waits. */
static void tell(struct member *member, struct message *m)
{
    if (m == NULL || member->dropped)
        return;
    m->refs++;
    if (weft_channel_try_send(member->told, weft_ptr(m)) == 0)
        return;
    forget(m);
    /* Its socket has been full for so long that its channel is, too. Nobody can be told so late. */
    member->dropped = true;
    member->chat->dropped++;
    (void)shutdown(member->fd, SHUT_RDWR);
}

/* The same for a message for nobody else, which is consumed. */
static void tell_alone(struct member *member, struct message *m)
{
    tell(member, m);
    if (m != NULL)
        forget(m);
}

/* ---- rooms ----------------------------------------------------------------------------------- */

static int64_t room_main(void *arg)
{
    struct room *room = arg;
    union weft_value value;

    while (fiber_channel_recv(room->said, &value, WEFT_FOREVER) == 0) {
        struct message *m = value.ptr;

        for (struct member *member = room->members; member != NULL; member = member->neighbour) {
            if (member->number != m->from)
                tell(member, m);
        }
        forget(m);
        room->chat->said++;
        (void)fiber_yield(); /* now the writers have their turn: no channel fills up meanwhile */
    }
    weft_channel_destroy(room->said);
    free(room);
    return 0;
}

static struct room *find_room(struct chat *chat, const char *name)
{
    struct room *room = chat->rooms;

    while (room != NULL && strcmp(room->name, name) != 0)
        room = room->next;
    return room;
}

static struct room *make_room(struct chat *chat, const char *name)
{
    struct room *room = calloc(1, sizeof *room);

    if (room == NULL)
        return NULL;
    room->chat = chat;
    room->said = weft_channel_create(ROOM_BACKLOG, forget);
    if (room->said == NULL || fiber_scope_daemon(&chat->scope, room_main, room) < 0) {
        weft_channel_destroy(room->said);
        free(room);
        return NULL;
    }
    snprintf(room->name, sizeof room->name, "%s", name);
    room->next = chat->rooms;
    room->link = &chat->rooms;
    if (room->next != NULL)
        room->next->link = &room->next;
    chat->rooms = room;
    return room;
}

/* Says something, which is consumed, in the member's room. */
static int say(struct member *member, struct message *m)
{
    int rc = -ENOMEM;

    if (m != NULL) {
        rc = fiber_channel_send(member->room->said, weft_ptr(m), WEFT_FOREVER);
        if (rc < 0)
            forget(m);
    }
    return rc;
}

static int say_left(void *arg)
{
    struct member *member = arg;

    return say(member,
               make(0, "* %s %s\n", member->name, member->dropped ? "was too slow" : "has left"));
}

/* Shielded: the others hear of it whatever has ended this one. The room's fiber waits for nobody, so
 * that can't take long. */
static void leave(struct member *member)
{
    struct room *room = member->room;

    if (room == NULL)
        return;
    *member->neighbour_link = member->neighbour;
    if (member->neighbour != NULL)
        member->neighbour->neighbour_link = member->neighbour_link;
    if (room->members != NULL)
        (void)fiber_shield(say_left, member);
    member->room = NULL;
    if (--room->users == 0) {
        *room->link = room->next;
        if (room->next != NULL)
            room->next->link = room->link;
        weft_channel_close(room->said); /* its fiber ends when all has been said */
    }
}

static int enter(struct member *member, const char *name)
{
    struct room *room;

    leave(member);
    room = find_room(member->chat, name);
    if (room == NULL)
        room = make_room(member->chat, name);
    if (room == NULL)
        return -ENOMEM;
    member->room = room;
    room->users++;
    member->neighbour = room->members;
    member->neighbour_link = &room->members;
    if (member->neighbour != NULL)
        member->neighbour->neighbour_link = &member->neighbour;
    room->members = member;
    tell_alone(member, make(0, "* you are in %s\n", room->name));
    return say(member, make(member->number, "* %s has come\n", member->name));
}

/* ---- a client -------------------------------------------------------------------------------- */

static weft_time write_limit(const struct member *member)
{
    return weft_after(WEFT_MS(member->chat->write_ms));
}

/* Writes all that there is in one go. */
static int64_t write_told(void *arg)
{
    struct member *member = arg;
    char buffer[4096];
    struct fiber_writer out;
    union weft_value value;
    int rc;

    fiber_writer_init(&out, member->fd, -1, buffer, sizeof buffer);
    while ((rc = fiber_channel_recv(member->told, &value, WEFT_FOREVER)) == 0) {
        /* Each write has its own time: in a busy room there may be no end to what is there. */
        do {
            struct message *m = value.ptr;

            rc = fiber_writer_write(&out, m->text, (size_t)m->length, NULL, write_limit(member));
            forget(m);
        } while (rc >= 0 && weft_channel_try_recv(member->told, &value) == 0);
        if (rc >= 0)
            rc = fiber_writer_flush(&out, write_limit(member));
        if (rc < 0)
            break;
    }
    fiber_writer_finish(&out);
    return rc == -ENODATA ? 0 : rc;
}

static bool is_name(const char *text)
{
    size_t length = strlen(text);

    return length > 0 && length <= NAME_MAX_BYTES &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") ==
               length;
}

static bool is_taken(const struct chat *chat, const char *name)
{
    for (const struct member *m = chat->members; m != NULL; m = m->next) {
        if (strcmp(m->name, name) == 0)
            return true;
    }
    return false;
}

static void who(struct member *member)
{
    char names[LINE_MAX_BYTES] = "";
    size_t length = 0;
    const struct member *m = member->room->members;

    for (; m != NULL && length + NAME_MAX_BYTES + 2 < sizeof names; m = m->neighbour)
        length += (size_t)sprintf(names + length, " %s", m->name);
    tell_alone(member, make(0, "* here:%s%s\n", names, m != NULL ? " and others" : ""));
}

/* 0: it goes on; 1: the client is through; or a negative errno. */
static int obey(struct member *member, const char *line)
{
    if (*line != '/')
        return say(member, make(member->number, "%s: %s\n", member->name, line));
    if (strcmp(line, "/quit") == 0)
        return 1;
    if (strncmp(line, "/join ", 6) == 0 && is_name(line + 6))
        return enter(member, line + 6);
    if (strcmp(line, "/who") == 0)
        who(member);
    else
        tell_alone(member, make(0, "* /join ROOM, /who, /quit\n"));
    return 0;
}

/* Reads until the client has ended, or is ended. */
static int converse(struct member *member, struct fiber_reader *in)
{
    struct chat *chat = member->chat;
    char *line;
    int rc = fiber_reader_line(in, LINE_MAX_BYTES, &line, weft_after(WEFT_MS(chat->idle_ms)));

    if (rc < 0)
        return rc;
    if (!is_name(line) || is_taken(chat, line)) {
        tell_alone(member,
                   make(0, "* %s\n", is_name(line) ? "that name is taken" : "that is no name"));
        return 0;
    }
    strcpy(member->name, line);
    rc = enter(member, "lobby");
    while (rc == 0) {
        rc = fiber_reader_line(in, LINE_MAX_BYTES, &line, weft_after(WEFT_MS(chat->idle_ms)));
        if (rc >= 0)
            rc = obey(member, line);
    }
    return rc < 0 ? rc : 0;
}

/* Closing with bytes unread would reset the connection, which can destroy what has been told last. */
static void skip_unread(int fd, struct fiber_reader *in)
{
    if (fiber_shutdown(fd, SHUT_WR, WEFT_FOREVER) == 0)
        fiber_reader_skip(in, UINT64_MAX, NULL, weft_after(WEFT_SEC(1)));
}

/* The scope holds the writer: if that fails, the reader is cancelled; when the reader is through, the
 * writer still writes what has been told. */
static int serve(int fd, void *ctx)
{
    struct chat *chat = ctx;
    struct member member = {.chat = chat, .fd = fd, .number = ++chat->numbers};
    char buffer[LINE_MAX_BYTES + 2];
    struct fiber_reader in;
    struct fiber_scope scope;
    bool unread;
    int rc;

    member.told = weft_channel_create((size_t)chat->backlog, forget);
    if (member.told == NULL)
        return -ENOMEM;
    member.next = chat->members;
    member.link = &chat->members;
    if (member.next != NULL)
        member.next->link = &member.next;
    chat->members = &member;

    fiber_scope_open(&scope, WEFT_FOREVER);
    fiber_reader_init(&in, fd, -1, buffer, sizeof buffer);
    rc = fiber_scope_spawn(&scope, write_told, &member);
    if (rc == 0)
        rc = converse(&member, &in);
    if (rc == -EMSGSIZE)
        tell_alone(&member, make(0, "* more than %d bytes\n", LINE_MAX_BYTES));
    unread = rc == 0 || rc == -EMSGSIZE; /* it is we who end it */
    leave(&member);
    weft_channel_close(member.told);
    rc = fiber_scope_close(&scope, rc == -ENODATA || rc == -EMSGSIZE ? 0 : rc);

    *member.link = member.next;
    if (member.next != NULL)
        member.next->link = member.link;
    weft_channel_destroy(member.told);
    if (unread && rc == 0 && !member.dropped)
        skip_unread(fd, &in);
    fiber_reader_finish(&in);
    return member.dropped ? 0 : rc;
}

/* ---- the program ----------------------------------------------------------------------------- */

static int run(void *arg)
{
    struct chat *chat = arg;
    int result;

    fiber_scope_open(&chat->scope, WEFT_FOREVER);
    result = fiber_scope_close(&chat->scope, fiber_serve(&chat->server, serve));
    printf("%lu messages, %lu clients dropped\n", chat->said, chat->dropped);
    return result;
}

int main(int argc, char **argv)
{
    static struct chat chat = {
        .backlog = 256, .write_ms = 10000, .idle_ms = 3600000, .drain_ms = 5000};
    struct program *program = &chat.program;
    int status;

    program_init(program, "A chat server: the first line is your name.");
    program_setting(program, "backlog", "messages a client may be behind", &chat.backlog, 1,
                    1000000);
    program_setting(program, "write-ms", "how long a write to a client may take", &chat.write_ms, 1,
                    3600000);
    program_setting(program, "idle-ms", "how long a client may say nothing", &chat.idle_ms, 1,
                    86400000);
    program_setting(program, "drain-ms", "how long clients have when stopping", &chat.drain_ms, 0,
                    3600000);
    program_read_settings(program, argc, argv);
    status = program_open(program);
    if (status != 0)
        return status;
    chat.server = program_server(program);
    chat.server.ctx = &chat;
    chat.server.name = "member";
    chat.server.ends_reading = true; /* what has been said is told, and that is all */
    chat.server.grace = WEFT_MS(chat.drain_ms);
    return program_end(program, weft_run(run, &chat, NULL));
}
