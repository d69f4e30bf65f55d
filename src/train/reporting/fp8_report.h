#pragma once
// What ran in FP8 and what did not, GEMM by GEMM: for the receipt and the table at the start.

#include <string>
#include <vector>

#include "base/json.h"
#include "run_report/gemm_line.h"
#include "train/trained_model.h"

namespace octavo::train {

using run_report::GemmLine;

// Every GEMM of the model: linear layers, the head, attention over sequences of `length`. The
// experts of one layer about which it says the same are one line.
std::vector<GemmLine> gemm_lines(const TrainedModel& trained, int64_t length);
double fp8_share(const std::vector<GemmLine>& lines);  // of the FLOPs

// Lines that say the same of the layers of several blocks become one ("h.*.attn.c_attn (12)").
std::string gemm_table(const std::vector<GemmLine>& lines);
// The GEMMs of such layers as one line: what they run in, their share of the FLOPs, and why not
// FP8.
std::string folded_gemm_table(const std::vector<GemmLine>& lines);

Json to_json(const std::vector<GemmLine>& lines);

// What the guard moved to BF16, as the receipt and the checkpoint keep it.
Json to_json(const std::vector<nn::Fp8Fallback>& fallbacks);

// The receipt's part.
Json fp8_receipt(const TrainedModel& trained, int64_t length);

}  // namespace octavo::train
