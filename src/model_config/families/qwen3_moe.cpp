// Qwen3-MoE: Qwen3 with experts in the place of the MLP, in all layers or some of them.

#include <algorithm>

#include "model_config/llama_fields.h"

namespace octavo::model_config {
namespace {

constexpr int64_t kMaxExperts = 4096;

// transformers 5 may write num_local_experts, which its class takes for the same.
int64_t read_count(ConfigFields& fields) {
  constexpr int64_t kOfTheClass = 128;
  const int64_t count = fields.count_or("num_experts", kMaxExperts, kOfTheClass);
  const int64_t local = fields.count_or("num_local_experts", kMaxExperts, count);
  if (fields.has("num_experts") && local != count) fields.refuse("num_local_experts");
  return local;
}

Experts read_experts(ConfigFields& fields, const std::string& source) {
  Experts experts;
  experts.count = read_count(fields);
  experts.active = fields.count_or("num_experts_per_tok", kMaxExperts, 8);
  experts.mlp = fields.count_or("moe_intermediate_size", 4 * kMaxWidth, 768);
  experts.renormalized = fields.flag_or("norm_topk_prob", false);
  experts.balance_weight = fields.real_or("router_aux_loss_coef", experts.balance_weight);
  // With the router's logits transformers' class adds the loss that balances them, and only then.
  experts.balances = fields.flag_or("output_router_logits", false);
  if (experts.active > experts.count)
    fail(ExitCode::kDamaged, "model_config", source,
         ": 'num_experts_per_tok' wanted in 1..num_experts (", experts.count, "), found ",
         experts.active);
  if (!(experts.balance_weight >= 0))
    fail(ExitCode::kDamaged, "model_config", source,
         ": 'router_aux_loss_coef' wanted of at least 0, found ", experts.balance_weight);
  return experts;
}

// Every decoder_sparse_step-th layer has experts, but those of mlp_only_layers.
std::vector<bool> read_sparse(ConfigFields& fields, int64_t layers) {
  const int64_t every = fields.count_or("decoder_sparse_step", kMaxLayers, 1);
  std::vector<bool> sparse;
  for (int64_t i = 0; i < layers; ++i) sparse.push_back((i + 1) % every == 0);
  if (fields.has("mlp_only_layers")) {
    const Json& dense = fields.object_or_empty("mlp_only_layers");
    const bool whole = dense.is_array() && std::ranges::all_of(dense, [&](const Json& layer) {
                         return layer.is_number_integer() && layer >= 0 && layer < layers;
                       });
    if (whole)
      for (const Json& layer : dense) sparse[layer.get<size_t>()] = false;
    else
      fields.refuse("mlp_only_layers");
  }
  fields.harmless({"mlp_only_layers"});
  if (std::ranges::find(sparse, true) == sparse.end()) fields.refuse("decoder_sparse_step");
  if (std::ranges::find(sparse, false) == sparse.end()) sparse.clear();
  return sparse;
}

ModelConfig read_qwen3_moe(const ConfigSource& file) {
  LlamaReader reader(kQwen3MoeFamily, file, {.kv_heads = 4});
  ModelConfig& config = reader.config;
  config.qkv_bias = config.out_bias = reader.fields.flag_or("attention_bias", false);
  // Of all layers: transformers' class has no layer_types, and does not read max_window_layers.
  constexpr int64_t kWindowOfTheClass = 4096;
  reader.fields.harmless({"sliding_window", "max_window_layers"});
  if (reader.fields.flag_or("use_sliding_window", false))
    config.window = reader.fields.count_or(
        "sliding_window", kMaxTokens, reader.is_missing("sliding_window") ? kWindowOfTheClass : 0);
  config.experts = read_experts(reader.fields, file.name);
  config.sparse = read_sparse(reader.fields, config.layers);
  return reader.done();
}

Json write_qwen3_moe(const ModelConfig& config) {
  const Experts& experts = *config.experts;
  Json json = llama_json(config);
  json["attention_bias"] = config.out_bias;
  json["use_sliding_window"] = config.window > 0;
  json["sliding_window"] = config.window > 0 ? Json(config.window) : Json();
  json["num_experts"] = experts.count;
  json["num_experts_per_tok"] = experts.active;
  json["moe_intermediate_size"] = experts.mlp;
  json["norm_topk_prob"] = experts.renormalized;
  json["router_aux_loss_coef"] = experts.balance_weight;
  json["output_router_logits"] = experts.balances;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = Json::array();
  for (int64_t i = 0; i < config.layers; ++i)
    if (!config.has_experts(i)) json["mlp_only_layers"].push_back(i);
  return json;
}

}  // namespace

const Family kQwen3MoeFamily = {.model_type = "qwen3_moe",
                                .architecture = "Qwen3MoeForCausalLM",
                                .title = "Qwen3-MoE",
                                .qk_norm = QkNorm::kHead,
                                .read = read_qwen3_moe,
                                .write = write_qwen3_moe};

}  // namespace octavo::model_config
