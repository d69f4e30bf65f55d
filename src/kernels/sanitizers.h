#pragma once
// Which sanitizer this is compiled for. Fibers look to it as if one thread jumped from stack to
// stack: it must be told.

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OCTAVO_FIBER_ASAN 1
#include <sanitizer/common_interface_defs.h>
#endif
#if __has_feature(thread_sanitizer)
#define OCTAVO_FIBER_TSAN 1
#include <sanitizer/tsan_interface.h>
#endif
#endif
