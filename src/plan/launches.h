#pragma once
// What octavo's host asks of a GPU: calls counted on the fake CUDA device
// (tests/integration/gpu_launches.json, docs/internals/gpu-host-cost.md).

#include "plan/step_time.h"

namespace octavo::plan {

// Seconds of the host for one call: 3.4 ms for the 322 calls of a GPT-2 step (bench/host_cost.py).
constexpr double kHostCall = 10.5e-6;
// Calls behind the wait of a step's end until the GPU has work ahead of it again.
constexpr double kCallsAfterWait = 20;

// Kernels, GEMMs and memsets of one micro-batch, and those of a step that depend on no layer.
double own_calls(const Workload& work);

}  // namespace octavo::plan
