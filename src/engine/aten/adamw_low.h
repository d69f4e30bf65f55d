#pragma once
// AdamW where something is stored in fewer than 32 bits.

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/ops.h"

namespace octavo::engine::aten {

class LowAdamW {
 public:
  // All on one device.
  void step_all(const std::vector<AdamW::Update*>& updates);

 private:
  struct Chunk;
  void make_tables(const at::Tensor& like);
  void step_chunk(Chunk& chunk, const AdamW::Hyper& hyper);

  // Of the codes of second moments, [256]: what each stands for, FP32, and the code of each number.
  at::Tensor second_values_, second_codes_;
};

}  // namespace octavo::engine::aten
