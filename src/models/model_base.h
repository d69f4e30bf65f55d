#pragma once
// What all architectures share: the lists of parameters and layers, and the way between our
// parameters and the tensors of Hugging Face files.

#include <string>
#include <vector>

#include "models/model.h"

namespace octavo::models {

class ModelBase : public Model {
 public:
  const nn::ParamList& params() const override { return params_; }
  const nn::LinearList& linears() const override { return linears_; }
  void set_gradient_checkpointing(bool on) override { recompute_ = on; }
  void set_gatherer(nn::WeightGatherer* gatherer) override;
  std::vector<nn::LayerModule> modules_of(const nn::Linear& layer) const override;
  void load_hugging_face(const TensorSource& source) override;
  NamedTensors to_hugging_face() const override;
  void initialize(uint64_t seed) override;
  double flops_per_token(int64_t length) const override;

 protected:
  ModelBase(const engine::Engine& engine, const nn::Storage& storage)
      : engine_(engine), storage_(storage) {}

  // A tensor of a file: rows of one of our parameters.
  struct FilePart {
    std::string name;
    std::string old_name;  // another name that files have for it; may be empty
    int64_t first_row = 0, rows = 0;
    bool transposed = false;  // stored as [in, out]
  };
  virtual std::vector<FilePart> parts_of(const nn::Param& param) const = 0;
  virtual std::string architecture() const = 0;  // for messages
  // Channels of queries times the keys that one sees on average, of all blocks together.
  virtual double attention_work(int64_t length) const = 0;
  virtual float initial_scale() const { return 1; }  // of norms
  // Whether a file's tensor is a head that only repeats the embedding.
  bool is_tied_head(const std::string& name, const at::Tensor& tensor) const;
  // The standard deviation of a matrix's first values.
  virtual float initial_deviation(const nn::Param& param) const = 0;

  nn::ParamPtr matrix(const std::string& name, int64_t rows, int64_t columns);
  // One row for each token, and the padding of model_config::padded_vocab.
  nn::ParamPtr vocabulary(const std::string& name, int64_t tokens, int64_t columns);
  nn::ParamPtr vector(const std::string& name, int64_t size);
  nn::LinearPtr linear(const std::string& name, int64_t block, int64_t outputs, int64_t inputs,
                       bool bias);
  // The parameters that are made from here on belong to block i, or with the end of the blocks to
  // the head: see nn/weight_gatherer.h.
  void begin_block(int64_t i) { unit_ = i + 1; }
  void end_blocks() { ++unit_; }
  // Runs block i, keeping its inputs alone when gradient checkpointing is on.
  std::pair<at::Tensor, at::Tensor> run_block(int64_t i, const nn::BlockFunction& block,
                                              const at::Tensor& x, const at::Tensor& delta) const;

  const engine::Engine& engine_;
  nn::Storage storage_;
  nn::ParamList params_;
  nn::LinearList linears_;
  bool recompute_ = false;

 private:
  nn::WeightGatherer* gatherer_ = nullptr;
  int64_t unit_ = 0;
  nn::ParamPtr add(const std::string& name, at::IntArrayRef shape, bool decays,
                   const nn::Storage& storage);
};

}  // namespace octavo::models
