#include "models/model_base.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/random.h"

namespace octavo::models {
namespace {

using at::Tensor;

}  // namespace

nn::ParamPtr ModelBase::add(const std::string& name, at::IntArrayRef shape, bool decays,
                            const nn::Storage& storage) {
  params_.push_back(
      nn::make_param(name, shape, engine_.target.compute, decays, engine_.target.device, storage));
  params_.back()->unit = unit_;
  return params_.back();
}

nn::ParamPtr ModelBase::matrix(const std::string& name, int64_t rows, int64_t columns) {
  nn::Storage storage = storage_;
  storage.packed = false;  // only linear layers decode their weights
  return add(name, {rows, columns}, true, storage);
}

nn::ParamPtr ModelBase::vocabulary(const std::string& name, int64_t tokens, int64_t columns) {
  return matrix(name, model_config::padded_vocab(tokens), columns);
}

nn::ParamPtr ModelBase::vector(const std::string& name, int64_t size) {
  return add(name, {size}, false, storage_);
}

nn::LinearPtr ModelBase::linear(const std::string& name, int64_t block, int64_t outputs,
                                int64_t inputs, bool bias) {
  const nn::ParamPtr weight = add(name + ".weight", {outputs, inputs}, true, storage_);
  linears_.push_back(nn::make_linear(name, block, weight,
                                     bias ? vector(name + ".bias", outputs) : nn::ParamPtr()));
  return linears_.back();
}

std::pair<Tensor, Tensor> ModelBase::run_block(int64_t i, const nn::BlockFunction& block,
                                               const Tensor& x, const Tensor& delta) const {
  const nn::BlockFunction run = [&](const Tensor& stream, const Tensor& branch) {
    return recompute_ ? nn::recomputed(block, stream, branch) : block(stream, branch);
  };
  return gatherer_ == nullptr ? run(x, delta) : nn::with_unit(*gatherer_, i + 1, run, x, delta);
}

void ModelBase::set_gatherer(nn::WeightGatherer* gatherer) {
  gatherer_ = gatherer;
  for (const auto& p : params_) p->gatherer = gatherer;
}

std::vector<nn::LayerModule> ModelBase::modules_of(const nn::Linear& layer) const {
  constexpr std::string_view kSuffix = ".weight";
  std::vector<nn::LayerModule> modules;
  for (const FilePart& part : parts_of(*layer.weight))
    modules.push_back({.name = part.name.substr(0, part.name.size() - kSuffix.size()),
                       .first_row = part.first_row,
                       .rows = part.rows});
  return modules;
}

void ModelBase::initialize(uint64_t seed) {
  nn::fill_masters(params_, [&](nn::Param& p) {
    if (p.master.dim() < 2) {
      p.master.fill_(p.name.ends_with(".weight") ? initial_scale()
                                                 : 0);  // the scales of norms; biases
      return;
    }
    int64_t rows = 0;  // of the file; those behind are padding
    for (const FilePart& part : parts_of(p)) rows += part.rows;
    Tensor values = at::empty(p.sizes(), at::kFloat);
    fill_normal(values.mutable_data_ptr<float>(), values.numel(), initial_deviation(p), seed,
                stream_of(p.name));
    values.narrow(0, rows, values.size(0) - rows).zero_();
    p.copy_rows(values, 0);
  });
}

double ModelBase::flops_per_token(int64_t length) const {
  auto matrices = static_cast<double>(head()->count());
  if (const nn::Routing* routers = routing())
    matrices += static_cast<double>(routers->sizes().weights);
  for (const auto& layer : linears_)
    matrices += layer->share * static_cast<double>(layer->weight->count());
  return 6 * matrices + 12 * attention_work(length);
}

bool ModelBase::is_tied_head(const std::string& name, const Tensor& tensor) const {
  const nn::Param& embedding = *head();
  if (name != "lm_head.weight" || tensor.dim() != 2 || tensor.size(0) != vocab_size() ||
      tensor.size(1) != embedding.sizes()[1])
    return false;
  const int64_t first = std::min(embedding.first_row, vocab_size());
  const int64_t rows = std::min(embedding.master.size(0), vocab_size() - first);
  return at::equal(tensor.narrow(0, first, rows).to(embedding.master.options()),
                   embedding.master.narrow(0, 0, rows));
}

void ModelBase::load_hugging_face(const TensorSource& source) {
  nn::fill_masters(params_, [&](nn::Param& p) {
    for (const FilePart& part : parts_of(p)) {
      Tensor found = source(part.name);
      if (!found.defined() && !part.old_name.empty()) found = source(part.old_name);
      if (!found.defined())
        fail(ExitCode::kDamaged, "models", "wanted a tensor '", part.name, "' of ", architecture(),
             ", found none in the model's files");
      if (part.transposed) found = found.t();
      std::vector<int64_t> wanted = p.sizes().vec();
      wanted[0] = part.rows;
      if (found.sizes() != at::IntArrayRef(wanted))
        fail(ExitCode::kDamaged, "models", "tensor '", part.name, "': wanted shape ",
             at::IntArrayRef(wanted), ", found ", found.sizes());
      p.copy_rows(found, part.first_row);
    }
  });
}

NamedTensors ModelBase::to_hugging_face() const {
  NamedTensors tensors;
  for (const auto& p : params_)
    for (const FilePart& part : parts_of(*p)) {
      const Tensor rows = p->master.narrow(0, part.first_row, part.rows);
      tensors.emplace_back(part.name, (part.transposed ? rows.t() : rows).contiguous());
    }
  return tensors;
}

}  // namespace octavo::models
