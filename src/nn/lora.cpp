#include "nn/lora.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"

namespace octavo::nn {

std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

namespace {

bool is_target(const std::vector<std::string>& targets, const std::string& module) {
  return targets.empty() || std::ranges::any_of(targets, [&](const std::string& t) {
           return t == "all" || t == "all-linear" || t == last_part(module) || t == module;
         });
}

void check_targets(const std::vector<std::string>& targets,
                   const std::vector<Lora::LayerOf>& layers) {
  std::set<std::string> known;
  for (const auto& entry : layers)
    for (const auto& module : entry.modules) known.insert(last_part(module.name));
  std::vector<std::string_view> names(known.begin(), known.end());
  for (const std::string& target : targets) {
    const bool hits = std::ranges::any_of(layers, [&](const Lora::LayerOf& entry) {
      return std::ranges::any_of(entry.modules,
                                 [&](const LayerModule& m) { return is_target({target}, m.name); });
    });
    if (hits) continue;
    const std::string nearest = nearest_name(target, names);
    std::string list;
    for (const auto& name : names) list += octavo::str(list.empty() ? "" : ", ", name);
    fail(ExitCode::kUsage, "nn", "lora_target_modules: this model has no layer '", target,
         "'; it has ", list,
         nearest.empty() ? std::string() : octavo::str("; did you mean '", nearest, "'?"));
  }
}

}  // namespace

Lora::Lora(const engine::Engine& engine, const std::vector<LayerOf>& layers,
           const LoraOptions& options)
    : options_(options),
      shared_{.scale = options.alpha / static_cast<double>(options.rank),
              .dropout = options.dropout,
              .seed = options.seed,
              .first_token = 0,
              .training = false} {
  check_targets(options.targets, layers);
  const at::NoGradGuard no_grad;
  const auto make = [&](const std::string& name, int64_t rows, int64_t columns) {
    params_.push_back(
        make_param(name, {rows, columns}, engine.target.compute, true, engine.target.device));
    return params_.back();
  };
  for (const auto& [layer, modules] : layers) {
    for (const LayerModule& module : modules) {
      if (!is_target(options.targets, module.name)) continue;
      const int64_t inputs = layer->weight->sizes()[1];
      Adapter adapter{.module = module.name,
                      .first_row = module.first_row,
                      .rows = module.rows,
                      .a = make(module.name + ".lora_A.weight", options.rank, inputs),
                      .b = make(module.name + ".lora_B.weight", module.rows, options.rank)};
      // As peft draws it: uniform, so that a's rows keep the size of x. b is zero.
      at::Tensor values = at::empty({options.rank, inputs}, at::kFloat);
      const auto bound = static_cast<float>(1 / std::sqrt(static_cast<double>(inputs)));
      auto* out = values.mutable_data_ptr<float>();
      const uint64_t stream = stream_of(adapter.a->name);
      for (int64_t i = 0; i < values.numel(); ++i)
        out[i] =
            bound *
            (2 * uniform_from_bits(philox(options.seed, stream, static_cast<uint64_t>(i))[0]) - 1);
      adapter.a->master.copy_(values);
      layer->adapters.push_back(std::move(adapter));
      modules_.push_back(module.name);
    }
    if (layer->adapters.empty()) continue;
    layer->adapter_shared = &shared_;
    layers_.push_back(layer);
  }
  refresh_compute(params_);
}

Lora::~Lora() {
  for (const auto& layer : layers_) {
    layer->adapters.clear();
    layer->adapter_shared = nullptr;
  }
}

void Lora::merge() {
  const at::NoGradGuard no_grad;
  for (const auto& layer : layers_) {
    Param& weight = *layer->weight;
    OCTAVO_ASSERT(weight.master.defined());  // not one that is kept in FP8
    for (const Adapter& adapter : layer->adapters) {
      at::Tensor rows = weight.master.narrow(0, adapter.first_row, adapter.rows);
      const at::Tensor change = at::mm(adapter.b->master, adapter.a->master).mul_(shared_.scale);
      rows.copy_(rows.to(at::kFloat) + change);
    }
    layer->adapters.clear();
    layer->adapter_shared = nullptr;
    refresh_compute({layer->weight});
  }
  layers_.clear();
}

double Lora::flops_per_token() const {
  double weights = 0;
  for (const auto& p : params_) weights += static_cast<double>(p->master.numel());
  return 6 * weights;
}

}  // namespace octavo::nn
