#pragma once
// What a run says of itself before its first step.

#include <string>
#include <vector>

#include "train/run.h"

namespace octavo::train {

// Model, data and tokens in one line; precision, FP8 backend and kernels in the next; of a run that
// was asked for FP8 also the GEMMs, a line for each group of layers (with verbose: for each GEMM).
std::vector<std::string> start_lines(const Run& run);

// How many threads compute, why so many, and how long one spins before it sleeps.
std::string threads_line(const config::Settings& settings);

// "fp8_linear te, matmul aten, attention aten/flash, others te, aten"; without FP8 the first is
// left out.
std::string kernel_words(const std::vector<engine::Choice>& choices, bool with_fp8);

}  // namespace octavo::train
