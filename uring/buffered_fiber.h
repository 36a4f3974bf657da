/* buffered_fiber.h: what readers and writers share. */
#ifndef BUFFERED_FIBER_H
#define BUFFERED_FIBER_H

#include <weft/buffered.h>
#include <weft/fiber.h>
#include <weft/io.h>

#include "ring_internal.h"

/* What a descriptor is found to be when it is first used. */
enum { FIBER__SOCKET_OR_FILE, FIBER__FILE };

/* Whether an error of a wait with that deadline is this wait's own, so that the next may do better.
 * A socket can time out by itself, and its operations are cancelled when somebody closes it; that
 * is for good. */
static inline bool fiber__is_passing(int error, weft_time deadline)
{
    return error == fiber_check() || (error == -ETIMEDOUT && ring__is_late(deadline));
}

#endif
