#include "plan/shape.h"

#include <algorithm>
#include <string_view>

namespace octavo::plan {

double attention_share(const Shape& shape, int64_t length) {
  if (shape.windowed_layers == 0 || shape.window >= length) return 1;
  const double seen = static_cast<double>(shape.window) / static_cast<double>(length);
  const double windowed =
      static_cast<double>(shape.windowed_layers) / static_cast<double>(shape.layers);
  return 1 - windowed * (1 - seen) * (1 - seen);
}

std::vector<LinearShape> block_linears(const Shape& shape) {
  return {{"qkv", shape.qkv_width(), shape.hidden},
          {"attention out", shape.hidden, shape.query_width()},
          {shape.gated ? "gate and up" : "up", shape.up_width(), shape.hidden},
          {"down", shape.hidden, shape.ffn}};
}

int64_t matrix_parameters(const Shape& shape) {
  int64_t block = 0;
  for (const LinearShape& linear : block_linears(shape)) block += linear.outputs * linear.inputs;
  return shape.layers * block;
}

int64_t head_parameters(const Shape& shape) {
  return shape.hidden * (shape.vocab * (shape.tied ? 1 : 2) + shape.positions);
}

int64_t vector_parameters(const Shape& shape) {
  const int64_t norm = shape.hidden * (shape.is_gpt2() ? 2 : 1);
  int64_t block = shape.family->block_norms() * norm + shape.qk_norm_values();
  if (shape.qkv_bias) block += shape.qkv_width();
  if (shape.out_bias) block += shape.hidden;
  if (shape.mlp_bias) block += shape.up_width() + shape.hidden;
  return shape.layers * block + norm;
}

int64_t parameters(const Shape& shape) {
  return matrix_parameters(shape) + head_parameters(shape) + vector_parameters(shape);
}

LoraTargets lora_targets(const config::Settings& settings) {
  constexpr std::string_view kAttention[] = {"q_proj", "k_proj", "v_proj", "o_proj", "c_attn"};
  const auto& names = settings.lora_target_modules;
  const bool attention = std::ranges::all_of(names, [&](const std::string& name) {
    return std::ranges::find(kAttention, name) != std::end(kAttention);
  });
  return !names.empty() && attention ? LoraTargets::kAttention : LoraTargets::kAll;
}

std::vector<LinearShape> adapted_modules(const Shape& shape, LoraTargets targets) {
  const int64_t kv = shape.kv_heads * shape.head_dim, q = shape.query_width();
  const int64_t h = shape.hidden, f = shape.ffn;
  std::vector<LinearShape> modules;
  if (shape.is_gpt2() || targets == LoraTargets::kQkv)
    modules = {{"qkv", q + 2 * kv, h}};  // GPT-2 has one module for all three
  else
    modules = {{"q", q, h}, {"k", kv, h}, {"v", kv, h}};
  if (targets == LoraTargets::kQkv) return modules;
  modules.push_back({"o", h, q});
  if (targets == LoraTargets::kAttention) return modules;
  if (shape.gated) modules.push_back({"gate", f, h});
  modules.push_back({"up", f, h});
  modules.push_back({"down", h, f});
  return modules;
}

int64_t lora_parameters(const Shape& shape, int64_t rank, LoraTargets targets) {
  int64_t values = 0;
  for (const LinearShape& module : adapted_modules(shape, targets))
    values += module.outputs + module.inputs;
  return shape.layers * rank * values;
}

}  // namespace octavo::plan
