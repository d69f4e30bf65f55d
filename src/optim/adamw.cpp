#include "optim/adamw.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "kernels/adamw_storage.h"

namespace octavo::optim {

AdamW::AdamW(const engine::Engine& engine, nn::ParamList params, const AdamWOptions& options)
    : engine_(engine), options_(options) {
  for (auto& p : params)
    if (p->trainable) params_.push_back(std::move(p));
  for (const auto& p : params_) {
    const bool is_matrix = p->master.dim() >= 2;
    const MomentType type = is_matrix ? options_.moments : MomentType::kFp32;
    m_.push_back(make_moment(p->master.sizes(), type, p->master.device()));
    v_.push_back(make_moment(p->master.sizes(), type, p->master.device()));
  }
  if (options_.moments == MomentType::kFp8 && options_.beta2 > adamw::kNoisyBeta2)
    log_warn(str("moment_dtype fp8 with beta2 ", options_.beta2,
                 ": the second moment changes by less than FP8 can hold, and will be off by half "
                 "its size; lower beta2 to 0.99 or take moment_dtype bf16"));
}

at::Tensor AdamW::gradient_squares() const {
  std::vector<at::Tensor> grads;
  for (const auto& p : params_) {
    // A parameter that no gradient reached would get stale numbers.
    OCTAVO_ASSERT(p->has_gradient());
    grads.push_back(p->counted_grad());
  }
  return engine_.adamw->sums_of_squares(grads);
}

AdamW::Norm AdamW::gradient_norm() const {
  return gradient_norm(gradient_squares().cpu());
}

AdamW::Norm AdamW::gradient_norm(const at::Tensor& squares) const {
  const auto* of = squares.const_data_ptr<double>();
  double total = 0;
  for (size_t i = 0; i < params_.size(); ++i) {
    if (!std::isfinite(of[i])) return {of[i], params_[i]->name};
    total += of[i];
  }
  return {std::sqrt(total), {}};
}

void AdamW::step(double learning_rate, const Norm& norm) {
  OCTAVO_ASSERT(norm.not_finite.empty());
  const at::NoGradGuard no_grad;
  const bool clip = options_.max_grad_norm > 0 && norm.value > options_.max_grad_norm;
  ++steps_;
  std::vector<engine::AdamW::Update> updates;
  for (size_t i = 0; i < params_.size(); ++i) {
    const auto& p = *params_[i];
    const engine::AdamW::Hyper hyper{
        .lr = static_cast<float>(learning_rate),
        .beta1 = static_cast<float>(options_.beta1),
        .beta2 = static_cast<float>(options_.beta2),
        .eps = static_cast<float>(options_.eps),
        .weight_decay = p.decays ? static_cast<float>(options_.weight_decay) : 0.0f,
        .step = steps_,
        .grad_scale = clip ? static_cast<float>(options_.max_grad_norm / norm.value) : 1.0f,
        .seed = options_.seed,
        .stream = mix64(stream_of("adamw." + p.name) + static_cast<uint64_t>(steps_)),
        .first = p.spreads_masters ? p.first_row * p.sizes()[1] : 0,
    };
    if (p.master.numel() == 0) continue;  // other ranks have all its rows
    updates.push_back({p.master, m_[i], v_[i], p.master_grad(), p.master_copy(), hyper});
  }
  engine_.adamw->step_all(updates);
  for (const auto& p : params_) {
    p->consume_gradient();
    ++p->version;
  }
}

void AdamW::drop_gradients() {
  for (const auto& p : params_) p->consume_gradient();
}

double AdamW::bytes_per_parameter() const {
  int64_t bytes = 0, count = 0;
  for (size_t i = 0; i < params_.size(); ++i) {
    const nn::Param& p = *params_[i];
    const int64_t n = p.master.numel();
    bytes += static_cast<int64_t>(p.master.nbytes()) + bytes_of(m_[i]) + bytes_of(v_[i]) +
             n * static_cast<int64_t>(c10::elementSize(p.grad_type));
    if (const at::Tensor copy = p.master_copy(); copy.defined())
      bytes += static_cast<int64_t>(copy.nbytes());
    count += n;
  }
  return count == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(count);
}

std::vector<std::pair<std::string, at::Tensor>> AdamW::state() const {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  const auto add = [&](const char* moment, const std::string& name, const Moment& kept) {
    tensors.emplace_back(str(moment, ".", name), kept.values);
    if (kept.scales.defined()) tensors.emplace_back(str(moment, "_scale.", name), kept.scales);
  };
  for (size_t i = 0; i < params_.size(); ++i) {
    add("m", params_[i]->name, m_[i]);
    add("v", params_[i]->name, v_[i]);
  }
  return tensors;
}

void AdamW::load(int64_t steps, const std::function<at::Tensor(const std::string&)>& find) {
  std::map<std::string, int> converted;  // "FP32 to FP8" -> how many
  const auto load_one = [&](const char* moment, const std::string& param, Moment& to,
                            MomentOrder order) {
    const std::string name = str(moment, ".", param);
    Moment stored{find(name), {}};
    if (stored.values.defined() && stored.values.scalar_type() == at::kByte)
      stored.scales = find(str(moment, "_scale.", param));
    const MomentType then = type_of(stored, to.values.sizes(), name);
    const MomentType now = type_of(to, to.values.sizes(), name);
    if (then != now) ++converted[str(name_of(then), " to ", name_of(now))];
    copy_moment(stored, to, order);
  };
  for (size_t i = 0; i < params_.size(); ++i) {
    load_one("m", params_[i]->name, m_[i], MomentOrder::kFirst);
    load_one("v", params_[i]->name, v_[i], MomentOrder::kSecond);
  }
  for (const auto& [what, count] : converted)
    log_warn(
        str("resume: ", count, " moments of the optimizer were converted from ", what,
            " (moment_dtype is another than the checkpoint's); training continues, but not bit "
            "for bit as it would have"));
  steps_ = steps;
}

}  // namespace octavo::optim
