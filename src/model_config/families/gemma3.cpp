// Gemma 3, its text models: norms before and after attention and MLP whose scale is 1 + weight,
// norms of each query's and key's head, GeGLU, embeddings times the root of the width, and five
// layers with a window and short rotary wavelengths for each one without.

#include <cmath>

#include "model_config/llama_fields.h"

namespace octavo::model_config {
namespace {

constexpr double kGemmaTheta = 1e6, kGemmaLocalTheta = 1e4;
constexpr const char *kLocalTheta = "rope_local_base_freq", *kQueryScalar = "query_pre_attn_scalar";

ModelConfig read_gemma3(const ConfigSource& file) {
  LlamaReader reader(kGemma3Family, file,
                     {.kv_heads = 4,
                      .head_dim = 256,
                      .tied = true,
                      .activation_field = "hidden_activation",
                      .ropes_by_layer = true});
  ModelConfig& config = reader.config;
  ConfigFields& fields = reader.fields;
  config.qkv_bias = config.out_bias = fields.flag_or("attention_bias", false);
  config.query_scalar = fields.real_or(kQueryScalar, 256);
  if (!(config.query_scalar > 0) || config.query_scalar > kMaxWidth)
    fail(ExitCode::kDamaged, "model_config", file.name, ": ", kQueryScalar,
         " wanted above 0 and at most ", kMaxWidth, ", found ", config.query_scalar);
  reader.read_ropes_by_layer(kGemmaTheta, kGemmaLocalTheta, kLocalTheta);
  const int64_t pattern = fields.count_or("sliding_window_pattern", kMaxLayers, 6);
  reader.read_windows(4096, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  fields.must_be("use_bidirectional_attention", {false});
  fields.must_be("attn_logit_softcapping", {});
  fields.must_be("final_logit_softcapping", {});
  fields.harmless({"cache_implementation", "_sliding_window_pattern"});
  return reader.done();
}

Json write_gemma3(const ModelConfig& config) {
  Json json = llama_json(config);
  json["pad_token_id"] = nullptr;  // or transformers would pad with a token of its own
  json.erase("hidden_act");
  json["hidden_activation"] = "gelu_pytorch_tanh";
  json["attention_bias"] = config.out_bias;
  // transformers wants it without a fraction when it has none.
  const double scalar =
      config.query_scalar > 0 ? config.query_scalar : static_cast<double>(config.head_dim);
  json[kQueryScalar] =
      scalar == std::floor(scalar) ? Json(static_cast<int64_t>(scalar)) : Json(scalar);
  json[kLocalTheta] = config.local_rope.value_or(config.rope).theta;
  write_windows(config, json);
  write_ropes_by_layer(config, json);
  return json;
}

}  // namespace

const Family kGemma3Family = {.model_type = "gemma3_text",
                              .architecture = "Gemma3ForCausalLM",
                              .title = "Gemma 3",
                              .norms = NormPlace::kBoth,
                              .norms_add_one = true,
                              .qk_norm = QkNorm::kHead,
                              .mlp = MlpKind::kGeGlu,
                              .scales_embedding = true,
                              .read = read_gemma3,
                              .write = write_gemma3};

}  // namespace octavo::model_config
