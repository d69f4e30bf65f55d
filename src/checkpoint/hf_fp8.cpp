#include "checkpoint/hf_fp8.h"

#include <ATen/ATen.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

namespace octavo::checkpoint {

namespace {

constexpr int64_t kLargestBlock = 1 << 20;

// A list of two positive sizes.
nn::Fp8Block read_block(const Json& sizes, const std::string& source) {
  const auto is_size = [](const Json& size) {
    return size.is_number_unsigned() && size.get<uint64_t>() >= 1 &&
           size.get<uint64_t>() <= uint64_t{kLargestBlock};
  };
  if (!sizes.is_array() || sizes.size() != 2 || !is_size(sizes[0]) || !is_size(sizes[1]))
    fail(ExitCode::kDamaged, "checkpoint", source, ": wanted two block sizes, found ",
         quote_name(sizes.dump()));
  return {sizes[0].get<int64_t>(), sizes[1].get<int64_t>()};
}

// A field of text; `otherwise` when it is not there.
std::string text_field(const Json& object, const char* name, const std::string& otherwise) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

[[noreturn]] void refuse_format(const std::string& source, const std::string& found) {
  fail(ExitCode::kUsage, "checkpoint", source,
       ": wanted weights that are not quantized, quant_method fp8 with E4M3 weights, or "
       "compressed-tensors with format float-quantized; found ",
       found, "; take the model's BF16 weights");
}

// The block of compressed-tensors' groups, which must all be 8-bit floats and scaled alike.
std::string read_groups(const Json& config, const std::string& source, nn::Fp8Block& block) {
  const Json& groups = json_field(config, "config_groups", Json::value_t::object, source);
  std::string strategy;
  for (const auto& group : groups.items()) {
    const std::string where = source + ": config_groups " + quote_name(group.key());
    const Json& weights = json_field(group.value(), "weights", Json::value_t::object, where);
    const std::string found = text_field(weights, "strategy", "");
    if (json_int(weights, "num_bits", where) != 8 || text_field(weights, "type", "") != "float" ||
        !weights.value("symmetric", Json(true)).is_boolean() || !weights.value("symmetric", true) ||
        (!strategy.empty() && found != strategy) ||
        (found != "tensor" && found != "channel" && found != "block"))
      refuse_format(where, quote_name(weights.dump()));
    if (found == "block")
      block =
          read_block(json_field(weights, "block_structure", Json::value_t::array, where), where);
    strategy = found;
  }
  return strategy;
}

}  // namespace

HfWeights::HfWeights(const fs::path& folder) : files_(open_hf_model(folder)) {
  read_method();
  find_quantized();
}

void HfWeights::read_method() {
  const auto found = files_.config.find("quantization_config");
  if (found == files_.config.end() || found->is_null()) return;
  const std::string source = (files_.folder / "config.json").string() + ": quantization_config";
  method_ = json_string(*found, "quant_method", source);
  if (method_ == "fp8") {
    if (text_field(*found, "fmt", "e4m3") != "e4m3")
      refuse_format(source, "fmt " + quote_name(found->at("fmt").dump()));
    suffix_ = "_scale_inv";
    const auto block = found->find("weight_block_size");
    if (block != found->end() && !block->is_null()) {
      grid_ = read_block(*block, source + ": weight_block_size");
      per_tensor_ = false;
    }
  } else if (method_ == "compressed-tensors") {
    const std::string format = text_field(*found, "format", "");
    if (format != "float-quantized") refuse_format(source, "format " + quote_name(format));
    suffix_ = "_scale";
    const std::string strategy = read_groups(*found, source, grid_);
    per_tensor_ = strategy == "tensor";
    per_row_ = strategy == "channel";
  } else {
    refuse_format(source, "quant_method " + quote_name(method_));
  }
}

nn::Fp8Block HfWeights::block_of(const std::string& name, const std::string& scale) const {
  const auto& shape = files_.info(name).shape;
  const auto& scales = files_.info(scale).shape;
  int64_t count = 1;
  for (const int64_t size : scales) count = checked_mul(count, size, "scales of " + name);
  if (shape.size() == 2 && shape[0] > 0 && shape[1] > 0) {
    if (per_tensor_ && count == 1) return {shape[0], shape[1]};
    if (per_row_ && count == shape[0] && !scales.empty() && scales[0] == shape[0])
      return {1, shape[1]};
    if (grid_.rows > 0 && scales == std::vector<int64_t>{ceil_div(shape[0], grid_.rows),
                                                         ceil_div(shape[1], grid_.columns)})
      return grid_;
  }
  fail(ExitCode::kDamaged, "checkpoint", files_.folder.string(), ": the shape [",
       at::IntArrayRef(scales), "] of ", quote_name(scale), " does not fit [",
       at::IntArrayRef(shape), "] of the weight and quantization_config; download the model again");
}

void HfWeights::find_quantized() {
  size_t inputs = 0;
  for (const auto& [name, shard] : files_.shard_of) {
    const at::ScalarType type = files_.info(name).dtype;
    // How inputs are to be quantized: nothing here does.
    if (!method_.empty() &&
        (name.ends_with(".input_scale") || name.ends_with(".activation_scale"))) {
      helpers_.insert(name);
      ++inputs;
      continue;
    }
    if (c10::elementSize(type) != 1 || !at::isFloatingType(type)) continue;
    if (type == at::kFloat8_e8m0fnu) continue;  // a scale
    const std::string scale = name + suffix_;
    if (type != at::kFloat8_e4m3fn || suffix_.empty() || !files_.contains(scale) ||
        !at::isFloatingType(files_.info(scale).dtype))
      fail(ExitCode::kDamaged, "checkpoint", files_.folder.string(), ": tensor ", quote_name(name),
           " is in eight bits (", safetensors_dtype_name(type), "): wanted E4M3 with scales ",
           suffix_.empty() ? "and a quantization_config in config.json"
                           : "in a tensor " + quote_name(scale),
           ", found none; download the model again");
    quantized_[name] = {scale, block_of(name, scale)};
    helpers_.insert(scale);
  }
  for (const auto& [name, shard] : files_.shard_of)
    if (!helpers_.contains(name)) names_.push_back(name);
  if (inputs > 0)
    log_info(str(files_.folder.string(), ": ", inputs,
                 " scales of layers' inputs are not used: weights become BF16 or FP32"));
}

at::Tensor HfWeights::tensor(const std::string& name) const {
  const at::Tensor stored = files_.tensor(name);
  const auto found = quantized_.find(name);
  if (found != quantized_.end())
    return nn::dequantize_weight(stored, files_.tensor(found->second.scale), found->second.block);
  if (!at::isFloatingType(stored.scalar_type()) || stored.element_size() == 1)
    fail(ExitCode::kDamaged, "checkpoint", files_.folder.string(), ": weight ", quote_name(name),
         ": wanted BF16, FP16, FP32 or FP8 with scales, found ",
         safetensors_dtype_name(stored.scalar_type()), "; take the model's BF16 weights");
  return stored;
}

void HfWeights::release(const std::string& name) const {
  files_.release(name);
}

uint64_t HfWeights::bytes() const {
  uint64_t total = 0;
  for (const auto& [name, shard] : files_.shard_of) {
    const TensorInfo& info = files_.info(name);
    total = checked_add(total, info.end - info.begin, "tensors of a model");
  }
  return total;
}

}  // namespace octavo::checkpoint
