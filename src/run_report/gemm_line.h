#pragma once
// One GEMM of a model in the receipt: what it ran in, why, and its share of the FLOPs.

#include <cstdint>
#include <string>
#include <vector>

namespace octavo::run_report {

struct GemmLine {
  std::string layer, gemm;
  std::string precision;   // "FP8 e4m3 x e5m2", "BF16", "FP32"
  std::string recipe;      // "" unless FP8
  std::string reason;      // why not FP8; "" when it is, or was not asked for
  double flops_share = 0;  // of all GEMMs of a trained token
  int64_t ran_fp8 = 0, ran_other = 0;
  int64_t layers = 1;  // that say the same: the experts of one layer
};

// Layers of several blocks about which the lines say the same.
struct GemmGroup {
  GemmLine line;        // of the first layer; shares and counts are sums
  std::string pattern;  // "h.*.attn.c_attn"
  int64_t layers = 0;

  std::string name() const;  // "h.*.attn.c_attn (12)"; of one layer its own
};

std::vector<GemmGroup> grouped(const std::vector<GemmLine>& lines);

}  // namespace octavo::run_report
