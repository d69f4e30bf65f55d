#pragma once
// The fields of config.json that families made like Llama share.

#include <functional>
#include <string>

#include "base/json.h"
#include "model_config/config_fields.h"
#include "model_config/model_config.h"

namespace octavo::model_config {

constexpr int64_t kMaxLayers = 1000, kMaxWidth = 1 << 20, kMaxTokens = 1 << 24;

// What transformers' class of a family takes for a field that is missing.
struct LlamaDefaults {
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: width / heads
  double norm_eps = 1e-6;
  bool tied = false;
  double theta = 10000;
  const char* activation_field = "hidden_act";
  bool ropes_by_layer = false;  // the family asks for them itself
};

// Reads the shared fields; the family reads its own with `fields` into `config`, and ends with
// done(), which refuses what nobody asked for.
class LlamaReader {
 public:
  LlamaReader(const Family& family, const ConfigSource& file, const LlamaDefaults& defaults = {});
  ModelConfig done() const;

  // layer_types says which layers have the window; without it `has_window(layer)` does. The length
  // is sliding_window, or when that is missing `window`, which may be 0: then no layer has one.
  void read_windows(int64_t window, const std::function<bool(int64_t)>& has_window);
  // The same when use_sliding_window says that windows are in use.
  void read_optional_windows(const std::function<bool(int64_t)>& has_window);
  // The first layer with a window, as the Qwens say it.
  int64_t first_window_layer();
  // One kind of rotary positions for layers with a window, another for those without.
  void read_ropes_by_layer(double theta, double local_theta, const char* local_theta_field);
  bool is_missing(const char* name) const { return !file_.object.contains(name); }

  ConfigFields fields;
  ModelConfig config;

 private:
  Rope rope_object(ConfigFields& parent, const char* name, double theta);
  Rope read_rope(double theta);
  void refuse_two_ropes();

  const ConfigSource& file_;
};

// What LlamaReader reads; the family adds its own.
Json llama_json(const ModelConfig& config);
// layer_types and the length of the window.
void write_windows(const ModelConfig& config, Json& json);
// rope_parameters of both kinds of layers, and the old spelling of the full ones.
void write_ropes_by_layer(const ModelConfig& config, Json& json);

}  // namespace octavo::model_config
