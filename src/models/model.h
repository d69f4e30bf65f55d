#pragma once
// What training, evaluation and generation need of an architecture.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "model_config/model_config.h"
#include "nn/kv_cache.h"
#include "nn/linear.h"
#include "nn/lora.h"
#include "nn/param.h"
#include "nn/penalty.h"
#include "nn/recompute.h"
#include "nn/routing.h"
#include "nn/sequences.h"
#include "nn/weight_gatherer.h"

namespace octavo::models {

using model_config::ModelConfig;
// A tensor of a Hugging Face file by its name there; undefined when there is none.
using TensorSource = std::function<at::Tensor(const std::string& name)>;
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

class Model {
 public:
  virtual ~Model() = default;
  virtual const nn::ParamList& params() const = 0;
  // The linear layers inside the blocks, in the order of the forward pass; not the head.
  virtual const nn::LinearList& linears() const = 0;
  // The modules of the Hugging Face model that a layer of linears() is made of.
  virtual std::vector<nn::LayerModule> modules_of(const nn::Linear& layer) const = 0;
  // Final hidden states [T, C]; `penalty` may be null.
  virtual at::Tensor hidden(const nn::Tokens& tokens, nn::Penalty* penalty) const = 0;
  // Of a model with experts: what its routers say in a training pass; null otherwise.
  virtual nn::Routing* routing() const { return nullptr; }
  virtual const nn::ParamPtr& head() const = 0;  // [padded vocabulary, C]
  virtual int64_t vocab_size() const = 0;        // real classes
  virtual int64_t context() const = 0;           // longest sequence
  virtual void initialize(uint64_t seed) = 0;
  // Blocks keep their inputs alone and run again in the backward pass.
  virtual void set_gradient_checkpointing(bool on) = 0;
  // Weights come and go with the blocks that read them; null: they stay.
  virtual void set_gatherer(nn::WeightGatherer* gatherer) = 0;
  virtual nn::KvCache make_cache(int64_t capacity) const = 0;
  // Weights in the architecture's Hugging Face names and layout.
  virtual void load_hugging_face(const TensorSource& source) = 0;
  // A tensor of a file that load_hugging_face did not ask for: may it be left out without a change
  // in what the model computes?
  virtual bool may_ignore(const std::string& name, const at::Tensor& tensor) const = 0;
  virtual NamedTensors to_hugging_face() const = 0;
  virtual Json hugging_face_config() const = 0;
  // Multiply-add operations (x 2) of one trained token, forward and backward: 6 x matrices +
  // attention.
  virtual double flops_per_token(int64_t length) const = 0;
};

// A model of any family; its weights are zero until they are loaded or initialized.
std::unique_ptr<Model> make(const ModelConfig& config, const engine::Engine& engine,
                            const nn::Storage& storage = {});
int64_t parameter_count(const Model& model);

using Maker = std::unique_ptr<Model> (*)(const ModelConfig& config, const engine::Engine& engine,
                                         const nn::Storage& storage);
// Who makes the models of families with this builder (model_config/family.h), for a program that
// brings its own: gpt2 and llama are there.
void add_maker(const std::string& builder, Maker maker);

}  // namespace octavo::models
