#pragma once
// Which operation, and which module of the model, launched each piece of GPU work.

#include "audit/trace.h"

namespace octavo::audit {

struct Attribution {
  bool ids_are_correlations = false;  // External id repeats the correlation: of no use
  int64_t by_id = 0, by_time = 0;     // work whose operation was found by its id, by its launch
  int64_t in_graphs = 0;              // launched by a replay of a CUDA graph: no operation
  int64_t unknown = 0;                // neither launch nor operation in the trace
};

// Fills op, module and launch of the trace's work. By the profiler's own External id where it can
// be trusted (kineto before October 2024 wrote the correlation id there, which hits the wrong
// operations), otherwise by the innermost operation that was under way on the launching thread.
Attribution attribute(Trace& trace);

}  // namespace octavo::audit
