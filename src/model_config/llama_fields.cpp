#include "model_config/llama_fields.h"

#include <algorithm>

namespace octavo::model_config {
namespace {

constexpr const char *kFull = "full_attention", *kSliding = "sliding_attention";

RopeScaling read_scaling(ConfigFields& rope, RopeScaling::Kind kind) {
  using Kind = RopeScaling::Kind;
  RopeScaling scaling{.kind = kind};
  scaling.factor = rope.real_or("factor", scaling.factor);
  if (kind == Kind::kLlama3) {
    scaling.low_freq_factor = rope.real_or("low_freq_factor", scaling.low_freq_factor);
    scaling.high_freq_factor = rope.real_or("high_freq_factor", scaling.high_freq_factor);
    scaling.original_context =
        rope.count_or("original_max_position_embeddings", kMaxTokens, scaling.original_context);
  } else if (kind == Kind::kYarn) {
    scaling.original_context = rope.count_to_run("original_max_position_embeddings", kMaxTokens);
    scaling.beta_fast = rope.real_or("beta_fast", scaling.beta_fast);
    scaling.beta_slow = rope.real_or("beta_slow", scaling.beta_slow);
    const double usual = scaling.factor > 1 ? 0.1 * std::log(scaling.factor) + 1 : 1;
    scaling.attention_factor = rope.real_or("attention_factor", usual);
    rope.must_be("truncate", {true});
  }
  return scaling;
}

bool makes_sense(const RopeScaling& s) {
  return s.factor > 0 && s.high_freq_factor > s.low_freq_factor && s.beta_slow > 0 &&
         s.beta_fast > s.beta_slow && s.attention_factor > 0;
}

std::optional<RopeScaling::Kind> kind_of(const std::string& rope_type) {
  if (rope_type == "llama3") return RopeScaling::Kind::kLlama3;
  if (rope_type == "linear") return RopeScaling::Kind::kLinear;
  if (rope_type == "yarn") return RopeScaling::Kind::kYarn;
  return std::nullopt;
}

Json rope_json(const Rope& rope) {
  if (!rope.scaling) return {{"rope_theta", rope.theta}, {"rope_type", "default"}};
  const RopeScaling& s = *rope.scaling;
  Json json = {{"rope_theta", rope.theta}, {"factor", s.factor}};
  switch (s.kind) {
    case RopeScaling::Kind::kLinear:
      json["rope_type"] = "linear";
      return json;
    case RopeScaling::Kind::kYarn:
      json.update({{"rope_type", "yarn"},
                   {"beta_fast", s.beta_fast},
                   {"beta_slow", s.beta_slow},
                   {"attention_factor", s.attention_factor}});
      break;
    case RopeScaling::Kind::kLlama3:
      json.update({{"rope_type", "llama3"},
                   {"low_freq_factor", s.low_freq_factor},
                   {"high_freq_factor", s.high_freq_factor}});
  }
  json["original_max_position_embeddings"] = s.original_context;
  return json;
}

// Both spellings: readers before transformers 5 know the old one only.
void write_old_rope(const Rope& rope, Json& json) {
  json["rope_theta"] = rope.theta;
  if (!rope.scaling) return;
  json["rope_scaling"] = rope_json(rope);
  json["rope_scaling"].erase("rope_theta");
}

}  // namespace

LlamaReader::LlamaReader(const Family& family, const ConfigSource& file,
                         const LlamaDefaults& defaults)
    : fields(file.object, file.name, family.title, file.refusal),
      config{.family = &family},
      file_(file) {
  fields.pass_general();
  fields.harmless({"is_llama_config", "quantization_config", "attention_dropout"});
  config.layers = fields.count("num_hidden_layers", kMaxLayers);
  config.width = fields.count("hidden_size", kMaxWidth);
  config.mlp = fields.count("intermediate_size", 4 * kMaxWidth);
  config.heads = fields.count("num_attention_heads", 4096);
  const bool no_kv_heads = is_missing("num_key_value_heads") && defaults.kv_heads > 0;
  config.kv_heads =
      fields.count_or("num_key_value_heads", 4096, no_kv_heads ? defaults.kv_heads : config.heads);
  config.vocab = fields.count("vocab_size", kMaxTokens);
  config.context = fields.count_to_run("max_position_embeddings", kMaxTokens);
  config.norm_eps = fields.real_or("rms_norm_eps", defaults.norm_eps);
  config.tied = fields.flag_or("tie_word_embeddings", defaults.tied);
  const int64_t usual_dim = defaults.head_dim > 0 ? defaults.head_dim : config.width / config.heads;
  config.head_dim = fields.count_or("head_dim", 1 << 14, usual_dim);
  if (config.heads % config.kv_heads != 0 || config.head_dim < 2 || config.head_dim % 2 != 0)
    fail(ExitCode::kDamaged, "model_config", file.name,
         ": wanted num_attention_heads to be a multiple of num_key_value_heads and an even "
         "head_dim, found ",
         config.heads, ", ", config.kv_heads, " and ", config.head_dim);
  if (!defaults.ropes_by_layer) config.rope = read_rope(defaults.theta);
  if (family.mlp == MlpKind::kGeGlu)
    fields.must_be(defaults.activation_field, {"gelu_pytorch_tanh"});
  else
    fields.must_be(defaults.activation_field, {"silu", "swish"});
  fields.must_be("pretraining_tp", {1});
  fields.must_be("rope_interleaved", {false});
  fields.must_be("partial_rotary_factor", {1});
}

ModelConfig LlamaReader::done() const {
  fields.refuse_rest();
  return config;
}

Rope LlamaReader::rope_object(ConfigFields& parent, const char* name, double theta) {
  const Json& object = parent.object_or_empty(name);
  ConfigFields rope(object, file_.name + ": " + name, "rotary positions", file_.refusal);
  Rope found{.theta = rope.real_or("rope_theta", theta), .scaling = {}};
  const std::string type = rope.text_or("rope_type", rope.text_or("type", "default"));
  if (const auto kind = kind_of(type)) {
    found.scaling = read_scaling(rope, *kind);
    if (!makes_sense(*found.scaling))
      fail(ExitCode::kDamaged, "model_config", file_.name,
           ": RoPE wanted with factor > 0, high_freq_factor > low_freq_factor and beta_fast > "
           "beta_slow > 0, found ",
           object.dump());
  } else if (type != "default") {
    parent.refuse(name);
  }
  rope.must_be("partial_rotary_factor", {1});
  rope.refuse_rest();
  if (!(found.theta > 1))
    fail(ExitCode::kDamaged, "model_config", file_.name, ": rope_theta wanted above 1, found ",
         found.theta);
  return found;
}

void LlamaReader::refuse_two_ropes() {
  fields.refuse_with(Error(
      ExitCode::kUsage, "model_config",
      file_.name + ": wanted rope_scaling and rope_parameters to say the same, found two kinds of "
                   "RoPE; remove the one that the model was not trained with"));
}

// transformers 5 writes rope_parameters; files of before have rope_theta and rope_scaling. Some
// have both, and readers differ in which of them they believe.
Rope LlamaReader::read_rope(double default_theta) {
  const double theta = fields.real_or("rope_theta", default_theta);
  const Rope old = rope_object(fields, "rope_scaling", theta);
  if (!fields.has("rope_parameters")) return old;
  const Rope rope = rope_object(fields, "rope_parameters", theta);
  if (fields.has("rope_scaling") && old != rope) refuse_two_ropes();
  return rope;
}

void LlamaReader::read_ropes_by_layer(double theta, double local_theta,
                                      const char* local_theta_field) {
  theta = fields.real_or("rope_theta", theta);
  local_theta =
      local_theta_field != nullptr ? fields.real_or(local_theta_field, local_theta) : theta;
  config.rope = rope_object(fields, "rope_scaling", theta);
  config.local_rope = Rope{.theta = local_theta, .scaling = {}};
  if (!fields.has("rope_parameters")) return;
  const Json& object = fields.object_or_empty("rope_parameters");
  ConfigFields by_layer(object, file_.name + ": rope_parameters", config.family->title,
                        file_.refusal);
  const Rope full = rope_object(by_layer, kFull, theta);
  if (fields.has("rope_scaling") && full != config.rope) refuse_two_ropes();
  config.rope = full;
  config.local_rope = rope_object(by_layer, kSliding, local_theta);
  by_layer.refuse_rest();
}

void LlamaReader::read_windows(int64_t window, const std::function<bool(int64_t)>& has_window) {
  config.window =
      fields.count_or("sliding_window", kMaxTokens, is_missing("sliding_window") ? window : 0);
  for (int64_t i = 0; i < config.layers; ++i) config.windowed.push_back(has_window(i));
  if (fields.has("layer_types")) {
    const Json& types = fields.object_or_empty("layer_types");
    const bool whole = types.is_array() && types.size() == static_cast<size_t>(config.layers) &&
                       std::all_of(types.begin(), types.end(), [](const Json& type) {
                         return type == kFull || type == kSliding;
                       });
    if (whole)
      for (size_t i = 0; i < types.size(); ++i) config.windowed[i] = types[i] == kSliding;
    else
      fields.refuse("layer_types");
  }
  fields.harmless({"layer_types"});
  if (config.window == 0 && std::ranges::find(config.windowed, true) != config.windowed.end())
    fields.refuse("sliding_window");
  if (config.local_rope) return;  // which layers are local matters without a window too
  if (std::ranges::find(config.windowed, true) == config.windowed.end()) {
    config.window = 0;
    config.windowed.clear();
  }
}

void LlamaReader::read_optional_windows(const std::function<bool(int64_t)>& has_window) {
  if (fields.flag_or("use_sliding_window", false)) return read_windows(0, has_window);
  fields.harmless({"sliding_window"});
  fields.must_be("layer_types", {Json(static_cast<size_t>(config.layers), kFull)});
}

int64_t LlamaReader::first_window_layer() {
  constexpr int64_t kOfTheClass = 28;
  fields.harmless({"max_window_layers"});
  return fields.has("max_window_layers") ? json_int(file_.object, "max_window_layers", file_.name)
                                         : kOfTheClass;
}

Json llama_json(const ModelConfig& c) {
  Json json = {{"num_hidden_layers", c.layers},
               {"hidden_size", c.width},
               {"intermediate_size", c.mlp},
               {"num_attention_heads", c.heads},
               {"num_key_value_heads", c.kv_heads},
               {"head_dim", c.head_dim},
               {"vocab_size", c.vocab},
               {"max_position_embeddings", c.context},
               {"rms_norm_eps", c.norm_eps},
               {"hidden_act", "silu"},
               {"tie_word_embeddings", c.tied}};
  write_old_rope(c.rope, json);
  json["rope_parameters"] = rope_json(c.rope);
  return json;
}

void write_windows(const ModelConfig& c, Json& json) {
  json["sliding_window"] = c.window > 0 ? Json(c.window) : Json();
  json["layer_types"] = Json::array();
  for (int64_t i = 0; i < c.layers; ++i)
    json["layer_types"].push_back((c.window > 0 || c.local_rope) && c.is_windowed(i) ? kSliding
                                                                                     : kFull);
}

void write_ropes_by_layer(const ModelConfig& c, Json& json) {
  json["rope_parameters"] = {{kFull, rope_json(c.rope)},
                             {kSliding, rope_json(c.local_rope.value_or(c.rope))}};
}

}  // namespace octavo::model_config
