#pragma once
// AdamW where something is stored in fewer than 32 bits.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "engine/ops.h"

namespace octavo::engine::aten {

class LowAdamW {
 public:
  void step(AdamW::Update& update);

 private:
  struct Chunk;
  void make_tables(const at::Tensor& like);
  void step_chunk(Chunk& chunk, const AdamW::Hyper& hyper);
  void seed(const at::Tensor& like, const AdamW::Hyper& hyper);
  // Numbers of [0, 2^bits), int32.
  at::Tensor draw(const at::Tensor& like, int64_t bits);

  std::optional<at::Generator> random_;  // of the device of the last step
  // Of the codes of second moments, [256]: what each stands for, FP32, and the code of each number.
  at::Tensor second_values_, second_codes_;
};

}  // namespace octavo::engine::aten
