#include "optim/adamw.h"

#include <ATen/ATen.h>

#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "kernels/adamw_storage.h"

namespace octavo::optim {

AdamW::AdamW(const engine::Engine& engine, nn::ParamList params, const Options& options)
    : Optimizer(engine, std::move(params), options) {
  for (const auto& p : this->params()) {
    const bool is_matrix = p->master.dim() >= 2;
    const MomentType type = is_matrix ? options.moments : MomentType::kFp32;
    m_.push_back(make_moment(p->master.sizes(), type, p->master.device()));
    v_.push_back(make_moment(p->master.sizes(), type, p->master.device()));
  }
  if (options.moments == MomentType::kFp8 && options.beta2 > adamw::kNoisyBeta2)
    log_warn(str("moment_dtype fp8 with beta2 ", options.beta2,
                 ": the second moment changes by less than FP8 can hold, and will be off by half "
                 "its size; lower beta2 to 0.99 or take moment_dtype bf16"));
}

void AdamW::update(double learning_rate, double gradient_scale) {
  std::vector<engine::AdamW::Update> updates;
  for (size_t i = 0; i < params().size(); ++i) {
    const auto& p = *params()[i];
    const engine::AdamW::Hyper hyper{
        .lr = static_cast<float>(learning_rate),
        .beta1 = static_cast<float>(options().beta1),
        .beta2 = static_cast<float>(options().beta2),
        .eps = static_cast<float>(options().eps),
        .weight_decay = p.decays ? static_cast<float>(options().weight_decay) : 0.0f,
        .step = steps(),
        .grad_scale = static_cast<float>(gradient_scale),
        .seed = options().seed,
        .stream = mix64(stream_of("adamw." + p.name) + static_cast<uint64_t>(steps())),
        .first = p.spreads_masters ? p.first_row * p.sizes()[1] : 0,
    };
    if (p.master.numel() == 0) continue;  // other ranks have all its rows
    updates.push_back({p.master, m_[i], v_[i], p.master_grad(), p.master_copy(), hyper});
  }
  engine().adamw->step_all(updates);
}

NamedTensors AdamW::state() const {
  NamedTensors tensors;
  const auto add = [&](const char* moment, const std::string& name, const Moment& kept) {
    tensors.emplace_back(str(moment, ".", name), kept.values);
    if (kept.scales.defined()) tensors.emplace_back(str(moment, "_scale.", name), kept.scales);
  };
  for (size_t i = 0; i < params().size(); ++i) {
    add("m", params()[i]->name, m_[i]);
    add("v", params()[i]->name, v_[i]);
  }
  return tensors;
}

void AdamW::load_state(const StateSource& find) {
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
  for (size_t i = 0; i < params().size(); ++i) {
    load_one("m", params()[i]->name, m_[i], MomentOrder::kFirst);
    load_one("v", params()[i]->name, v_[i], MomentOrder::kSecond);
  }
  for (const auto& [what, count] : converted)
    log_warn(
        str("resume: ", count, " moments of the optimizer were converted from ", what,
            " (moment_dtype is another than the checkpoint's); training continues, but not bit "
            "for bit as it would have"));
}

std::unique_ptr<Optimizer> make_adamw(const engine::Engine& engine, nn::ParamList params,
                                      const Options& options) {
  return std::make_unique<AdamW>(engine, std::move(params), options);
}

}  // namespace octavo::optim
