#pragma once
// The operations of one run, chosen once for its device and dtype. Layers hold a reference to it.

#include <memory>
#include <vector>

#include "engine/fp8_linear.h"
#include "engine/op_table.h"
#include "engine/ops.h"

namespace octavo::engine {

struct Engine {
  explicit Engine(const Target& target);

  Target target;
  std::vector<Choice> choices;  // for the receipt, in the order of the members below
  std::unique_ptr<Matmul> matmul;
  std::unique_ptr<Fp8Linear> fp8_linear;
  std::unique_ptr<LayerNorm> layer_norm;
  std::unique_ptr<RmsNorm> rms_norm;
  std::unique_ptr<Gelu> gelu;
  std::unique_ptr<SwiGlu> swiglu;
  std::unique_ptr<GeGlu> geglu;
  std::unique_ptr<Rope> rope;
  std::unique_ptr<ColumnSum> column_sum;
  std::unique_ptr<CrossEntropy> cross_entropy;
  std::unique_ptr<Attention> attention;
  std::unique_ptr<Embedding> embedding;
  std::unique_ptr<AdamW> adamw;
};

}  // namespace octavo::engine
