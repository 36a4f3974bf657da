/* operation.c: the raw form of every operation. */
#include "ring_internal.h"

const struct ring__row_info ring__rows[RING__ROWS] = {
#define OPERATION(name, opcode, ready, traits, ...) [RING__ROW_##name] = {#name, ready, traits},
#include "operations.def"
};

#define STREAM_OPERATION(...) /* streams submit them */
#define OPERATION(name, opcode, ready, traits, parameters, arguments, ...) \
    int ring_##name(struct ring_op *op RING__AFTER parameters)             \
    {                                                                      \
        struct weft_runtime *rt = weft__rt;                                \
        int error;                                                         \
                                                                           \
        if (weft__unlikely(rt == NULL))                                    \
            return -EINVAL;                                                \
        error = ring__prepare_##name(op RING__AFTER arguments);            \
        return error != 0 ? error : ring__submit(rt, op);                  \
    }
#include "operations.def"

void ring_cancel(struct ring_op *op)
{
    ring__cancel(weft__rt, op);
}
