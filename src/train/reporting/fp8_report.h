#pragma once
// What ran in FP8 and what did not, GEMM by GEMM: for the receipt and the table at the start.

#include <string>
#include <vector>

#include "base/json.h"
#include "train/trained_model.h"

namespace octavo::train {

struct GemmLine {
  std::string layer, gemm;
  std::string precision;   // "FP8 e4m3 x e5m2", "BF16", "FP32"
  std::string recipe;      // "" unless FP8
  std::string reason;      // why not FP8; "" when it is, or was not asked for
  double flops_share = 0;  // of all GEMMs of a trained token
  int64_t ran_fp8 = 0, ran_other = 0;
};

// Every GEMM of the model: linear layers, the head, attention over sequences of `length`.
std::vector<GemmLine> gemm_lines(const TrainedModel& trained, int64_t length);
double fp8_share(const std::vector<GemmLine>& lines);  // of the FLOPs

// Lines that say the same of the layers of several blocks become one ("h.*.attn.c_attn (12)").
std::string gemm_table(const std::vector<GemmLine>& lines);

Json to_json(const std::vector<GemmLine>& lines);

// What the guard moved to BF16, as the receipt and the checkpoint keep it.
Json to_json(const std::vector<nn::Fp8Fallback>& fallbacks);

// The receipt's part.
Json fp8_receipt(const TrainedModel& trained, int64_t length);

}  // namespace octavo::train
