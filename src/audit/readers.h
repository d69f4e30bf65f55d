#pragma once
// One reader for each format of traces; trace.h picks one.

#include "audit/trace.h"

namespace octavo::audit {

// Chrome's trace format, as PyTorch's profiler (kineto) and octavo itself write it.
Trace read_chrome(const fs::path& path);

// The SQLite export of Nsight Systems.
Trace read_nsight(const fs::path& path);

}  // namespace octavo::audit
