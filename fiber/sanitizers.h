/* sanitizers.h: which of the compiler's sanitizers this is built with, and what they want to be told. */
#ifndef WEFT_SANITIZERS_H
#define WEFT_SANITIZERS_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT__ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define WEFT__TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define WEFT__ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define WEFT__TSAN 1
#endif

#ifdef WEFT__ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef WEFT__TSAN
#include <sanitizer/tsan_interface.h>
#endif

#endif
