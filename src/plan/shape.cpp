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
  using Place = LinearShape::Place;
  const int64_t h = shape.hidden, dense = shape.dense_layers();
  std::vector<LinearShape> linears = {
      {"qkv", shape.qkv_width(), h, Place::kAttention, shape.layers},
      {"attention out", h, shape.query_width(), Place::kAttention, shape.layers}};
  if (dense > 0) {
    linears.push_back(
        {shape.gated ? "gate and up" : "up", shape.up_width(), h, Place::kMlp, dense});
    linears.push_back({"down", h, shape.ffn, Place::kMlp, dense});
  }
  if (const int64_t count = shape.sparse_layers() * shape.experts; count > 0) {
    const double share =
        static_cast<double>(shape.active_experts) / static_cast<double>(shape.experts);
    const int64_t up = shape.gated ? 2 * shape.expert_ffn : shape.expert_ffn;
    linears.push_back({"experts' gate and up", up, h, Place::kExpert, count, share});
    linears.push_back({"experts' down", h, shape.expert_ffn, Place::kExpert, count, share});
  }
  return linears;
}

int64_t router_parameters(const Shape& shape) {
  return shape.sparse_layers() * shape.experts * shape.hidden;
}

int64_t matrix_parameters(const Shape& shape) {
  int64_t all = router_parameters(shape);
  for (const LinearShape& p : block_linears(shape)) all += p.count * p.outputs * p.inputs;
  return all;
}

int64_t active_parameters(const Shape& shape) {
  double idle = 0;
  for (const LinearShape& p : block_linears(shape)) idle += p.weights() * (1 - p.share);
  return parameters(shape) - static_cast<int64_t>(idle);
}

int64_t head_parameters(const Shape& shape) {
  return shape.hidden * (shape.vocab * (shape.tied ? 1 : 2) + shape.positions);
}

int64_t vector_parameters(const Shape& shape) {
  const int64_t norm = shape.hidden * (shape.is_gpt2() ? 2 : 1);
  int64_t block = shape.family->block_norms() * norm + shape.qk_norm_values();
  if (shape.qkv_bias) block += shape.qkv_width();
  if (shape.out_bias) block += shape.hidden;
  const int64_t mlp = shape.mlp_bias ? shape.up_width() + shape.hidden : 0;
  return shape.layers * block + shape.dense_layers() * mlp + norm;
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
  const auto add = [&](const char* name, int64_t outputs, int64_t inputs) {
    modules.push_back({name, outputs, inputs, LinearShape::Place::kAttention, shape.layers});
  };
  if (shape.is_gpt2() || targets == LoraTargets::kQkv) {
    add("qkv", q + 2 * kv, h);  // GPT-2 has one module for all three
  } else {
    add("q", q, h);
    add("k", kv, h);
    add("v", kv, h);
  }
  if (targets == LoraTargets::kQkv) return modules;
  add("o", h, q);
  // Experts have no adapters.
  if (targets == LoraTargets::kAttention || shape.dense_layers() == 0) return modules;
  const auto add_mlp = [&](const char* name, int64_t outputs, int64_t inputs) {
    modules.push_back({name, outputs, inputs, LinearShape::Place::kMlp, shape.dense_layers()});
  };
  if (shape.gated) add_mlp("gate", f, h);
  add_mlp("up", f, h);
  add_mlp("down", h, f);
  return modules;
}

int64_t lora_parameters(const Shape& shape, int64_t rank, LoraTargets targets) {
  int64_t values = 0;
  for (const LinearShape& module : adapted_modules(shape, targets))
    values += module.count * (module.outputs + module.inputs);
  return rank * values;
}

}  // namespace octavo::plan
