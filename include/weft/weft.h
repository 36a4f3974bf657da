/* weft/weft.h: all of weft. */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include <weft/base.h>
#include <weft/cluster.h>
#include <weft/io.h>
#include <weft/offload.h>
#include <weft/process.h>
#include <weft/promise.h>
#include <weft/promise_blocking.h>
#include <weft/promise_list.h>
#include <weft/promise_result.h>
#include <weft/promise_retry.h>
#include <weft/promise_sequence.h>
#include <weft/promise_stream.h>
#include <weft/promise_sync.h>
#include <weft/promise_throttle.h>
#include <weft/promise_time.h>
#include <weft/react.h>
#include <weft/ring.h>
#include <weft/ring_stream.h>
#include <weft/runtime.h>
#include <weft/server.h>
#include <weft/shared_channel.h>
#include <weft/signals.h>
#include <weft/sync.h>
#include <weft/watch.h>
#include <weft/workers.h>
#if WEFT_HAS_FIBERS
#include <weft/buffered.h>
#include <weft/fiber.h>
#include <weft/scope.h>
#endif

#endif
