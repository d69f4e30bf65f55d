#pragma once
// One linear layer's work in BF16 and in FP8, timed in turns.

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "fp8/recipe.h"
#include "nn/linear.h"

namespace octavo::bench {

struct LayerShape {
  int64_t tokens = 0, outputs = 0, inputs = 0;
};

// Seconds of one turn.
struct Round {
  std::array<double, 3> bf16{}, fp8{};  // by nn::Gemm; of matrices that are there already
  std::array<double, 3> quantize{};     // by fp8::Role; every copy that training makes
};

// Of many rounds.
struct Spread {
  double median = 0, low = 0, high = 0;  // low, high: the quartiles
};
Spread spread_of(std::vector<double> values);

struct LayerTimes {
  LayerShape shape;
  bool frozen = false;  // no weight gradient
  bool has_fp8 = false;
  std::vector<Round> rounds;  // without the first, which warms up

  std::vector<nn::Gemm> gemms() const;
  double flops() const;  // of one GEMM
  Spread bf16(nn::Gemm gemm) const;
  Spread fp8(nn::Gemm gemm) const;       // the GEMM alone
  Spread quantize(nn::Gemm gemm) const;  // its share
  Spread ratio(nn::Gemm gemm) const;     // BF16 over FP8 with its quantizing; above 1 FP8 is faster
};

// A matrix is quantized once and read by two GEMMs: each has half of it. An input whose weight
// is frozen is read by one.
double quantize_share(const Round& round, nn::Gemm gemm, bool frozen);
// Of all GEMMs of a layer.
double whole_bf16(const Round& round);
double whole_fp8(const Round& round);

struct LayerBenchOptions {
  fp8::Recipe recipe = fp8::kDefaultRecipe;
  fp8::FormatChoice format = fp8::FormatChoice::kHybrid;
  bool frozen = false, has_fp8 = true;
  int least_rounds = 5;
  double seconds = 0;  // more rounds until then
};
LayerTimes time_layer(const engine::Engine& engine, const LayerShape& shape,
                      const LayerBenchOptions& options);

}  // namespace octavo::bench
