/* weft/weft.h: all of weft. */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include <weft/base.h>
#include <weft/runtime.h>
#include <weft/promise.h>
#include <weft/ring.h>
#include <weft/io.h>
#if WEFT_HAS_FIBERS
#include <weft/fiber.h>
#endif

#endif
