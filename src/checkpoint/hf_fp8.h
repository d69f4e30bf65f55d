#pragma once
// The weights of a Hugging Face folder as numbers, whatever they are stored as. Those in eight bits
// (E4M3 codes with scales beside them) become FP32 when they are asked for, one at a time.
//   quant_method fp8 (DeepSeek-V3, transformers, vLLM)
//       X.weight [out, in], X.weight_scale_inv [ceil(out / 128), ceil(in / 128)], or one number
//   quant_method compressed-tensors, format float-quantized (llm-compressor, vLLM)
//       X.weight [out, in], X.weight_scale: [out, 1], a grid of blocks, or one number
// Despite the name both scales are factors of the codes. Other methods are refused.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/hf.h"
#include "nn/fp8_weight.h"

namespace octavo::checkpoint {

class HfWeights {
 public:
  explicit HfWeights(const fs::path& folder);

  const HfModel& files() const { return files_; }
  // The tensors that are weights: all but the scales.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& name) const {
    return files_.contains(name) && !helpers_.contains(name);
  }
  const std::vector<int64_t>& shape(const std::string& name) const {
    return files_.info(name).shape;
  }
  // FP32 when it was in eight bits, else a read-only view of the file; a type without fractions is
  // refused.
  at::Tensor tensor(const std::string& name) const;
  // Its pages need not stay in memory.
  void release(const std::string& name) const;

  size_t in_eight_bits() const { return quantized_.size(); }
  const std::string& method() const { return method_; }  // "" when config.json names none
  uint64_t bytes() const;                                // of all tensors, as stored

 private:
  struct Quantized {
    std::string scale;
    nn::Fp8Block block;
  };
  void read_method();
  void find_quantized();
  nn::Fp8Block block_of(const std::string& name, const std::string& scale) const;

  HfModel files_;
  std::string method_;
  std::string suffix_;       // of the scales' names
  bool per_tensor_ = true;   // a scale may be one number
  bool per_row_ = false;     // or one for each row
  nn::Fp8Block grid_{0, 0};  // or one for each such block; 0: none
  std::vector<std::string> names_;
  std::set<std::string> helpers_;  // scales
  std::map<std::string, Quantized> quantized_;
};

}  // namespace octavo::checkpoint
