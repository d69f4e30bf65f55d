#pragma once
// What the library's configuration handles point to here.

#include <transformer_engine/transformer_engine.h>

namespace te_double {

struct QuantizationConfig {
  bool power_of_two_scales = false;
  bool squares = false, stochastic = false;  // of NVFP4
  NVTETensor draws = nullptr;
};
struct MatmulConfig {
  bool split_accumulator = false;
  NVTETensor bias = nullptr, bias_gradient = nullptr;
  NVTETensor gelu_input = nullptr;
  bool gelu = false, gelu_gradient = false;  // at the end of the GEMM
};

}  // namespace te_double
