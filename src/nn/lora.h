#pragma once
// The adapters of a model: made, put beside its layers, folded into its weights.

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "nn/adapter.h"
#include "nn/linear.h"

namespace octavo::nn {

// The part of a layer's rows that a module of the Hugging Face model is.
struct LayerModule {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  int64_t first_row = 0, rows = 0;
};

// "q_proj" of "model.layers.0.self_attn.q_proj": what targets are named by.
std::string last_part(const std::string& module);

struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16, dropout = 0;
  uint64_t seed = 0;
  std::vector<std::string> targets;  // last parts of module names; empty or "all": all
};

class Lora {
 public:
  struct LayerOf {
    LinearPtr layer;
    std::vector<LayerModule> modules;
  };
  // Puts adapters beside the layers; a is random, b zero: nothing changes at first.
  Lora(const engine::Engine& engine, const std::vector<LayerOf>& layers,
       const LoraOptions& options);
  ~Lora();
  Lora(const Lora&) = delete;
  Lora& operator=(const Lora&) = delete;

  const ParamList& params() const { return params_; }
  const LoraOptions& options() const { return options_; }
  const std::vector<std::string>& modules() const { return modules_; }  // that have an adapter
  // Between the two a forward and backward pass of training runs, of tokens that are numbered from
  // here on; each token drops inputs of its own.
  void begin_pass(uint64_t first_token) {
    shared_.first_token = first_token;
    shared_.training = true;
  }
  void end_pass() { shared_.training = false; }
  // Adds scale b a to the layers' weights and takes the adapters away.
  void merge();
  // Multiply-adds (x 2) of one trained token that the adapters take: forward, and two gradients.
  double flops_per_token() const;

 private:
  LoraOptions options_;
  AdapterShared shared_;
  LinearList layers_;
  ParamList params_;
  std::vector<std::string> modules_;
};

}  // namespace octavo::nn
