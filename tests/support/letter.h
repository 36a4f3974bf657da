/* letter.h: messages with descriptors, to send and to receive. */
#ifndef WEFT_TEST_LETTER_H
#define WEFT_TEST_LETTER_H

#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* A message of one piece, with room for the descriptors that come with it. */
struct letter {
    struct msghdr header;
    struct iovec piece;
    char text[16];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
};

static inline struct msghdr *letter_to_fill(struct letter *l)
{
    memset(l, 0, sizeof *l);
    l->piece = (struct iovec){l->text, sizeof l->text};
    l->header = (struct msghdr){.msg_iov = &l->piece,
                                .msg_iovlen = 1,
                                .msg_control = l->control,
                                .msg_controllen = sizeof l->control};
    return &l->header;
}

static inline struct msghdr *letter_with(struct letter *l, const char *text, const int *fds,
                                         size_t count)
{
    struct cmsghdr *c;

    letter_to_fill(l);
    l->piece.iov_len = strlen(text);
    memcpy(l->text, text, l->piece.iov_len);
    l->header.msg_controllen = count == 0 ? 0 : CMSG_SPACE(count * sizeof *fds);
    if (count > 0) {
        c = CMSG_FIRSTHDR(&l->header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof *fds);
        memcpy(CMSG_DATA(c), fds, count * sizeof *fds);
    }
    return &l->header;
}

/* How many descriptors came; fds receives them. */
static inline size_t letter_fds(struct letter *l, int *fds)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(&l->header);
    size_t count;

    if (c == NULL || c->cmsg_type != SCM_RIGHTS)
        return 0;
    count = (c->cmsg_len - CMSG_LEN(0)) / sizeof *fds;
    memcpy(fds, CMSG_DATA(c), count * sizeof *fds);
    return count;
}

#endif
