#include "train/guards/replay.h"

#include <ATen/ATen.h>

#include <cmath>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "train/lora_run.h"
#include "train/pass.h"

namespace octavo::train {
namespace {

// The lowest number that any rank has found (all find from 0 on, -1 is nothing), and who has.
int64_t first_found(dist::World& world, int64_t mine, const std::string& what,
                    std::vector<int>& ranks) {
  const at::Tensor all = world.from_all({&mine, 1}, what);
  const std::span found(all.const_data_ptr<int64_t>(), static_cast<size_t>(world.size()));
  int64_t first = -1;
  for (const int64_t f : found)
    if (f >= 0 && (first < 0 || f < first)) first = f;
  for (size_t r = 0; r < found.size() && first >= 0; ++r)
    if (found[r] == first) ranks.push_back(static_cast<int>(r));
  return first;
}

bool all_finite(const at::Tensor& values) {
  return !values.defined() || !values.is_floating_point() ||
         at::isfinite(values).all().item<bool>();
}

int64_t first_bad_weight(const nn::ParamList& params) {
  for (size_t i = 0; i < params.size(); ++i)
    if (!all_finite(params[i]->master) || !all_finite(params[i]->compute) ||
        !all_finite(params[i]->scales))
      return static_cast<int64_t>(i);
  return -1;
}

// While it lives no graph is replayed, what runs is not counted, and the model may be in BF16.
class ReplayScope {
 public:
  ReplayScope(TrainedModel& trained, bool in_bf16)
      : trained_(trained), graph_(std::exchange(trained.graph, nullptr)) {
    for (const auto& layer : trained.model->linears()) {
      gemm_counts_.push_back(layer->gemm_counts);
      layers_.push_back(in_bf16 ? std::move(layer->fp8) : nullptr);
    }
  }
  ReplayScope(const ReplayScope&) = delete;
  ReplayScope& operator=(const ReplayScope&) = delete;
  ~ReplayScope() {
    trained_.graph = std::move(graph_);
    size_t i = 0;
    for (const auto& layer : trained_.model->linears()) {
      layer->gemm_counts = gemm_counts_[i];
      if (layers_[i] != nullptr) layer->fp8 = std::move(layers_[i]);
      ++i;
    }
  }

 private:
  TrainedModel& trained_;
  std::unique_ptr<StepGraph> graph_;  // a graph cannot be looked into
  std::vector<std::array<nn::Linear::GemmCounts, 3>> gemm_counts_;
  std::vector<std::unique_ptr<nn::Fp8Layer>> layers_;
};

// The step that is done again.
struct Replay {
  const config::Settings& settings;
  dist::World& world;
  TrainedModel& trained;
  int64_t step;
  const std::vector<data::Batch>& batches;
  double tokens;

  bool is_finite(bool in_bf16);
};

bool Replay::is_finite(bool in_bf16) {
  trained.optimizer->drop_gradients();
  if (trained.sharding != nullptr) trained.sharding->weights_changed();
  if (in_bf16) {
    // FP8's statistics stay for the guard, which will judge them; its magnitudes are dropped
    // anyway.
    trained.probes->begin_step(/*repeated=*/true);
    trained.fp8->forget_magnitudes();
  } else {
    if (trained.fp8 != nullptr) trained.fp8->abandon_step();
    begin_step(world, trained, step, /*repeated=*/true);
  }
  const ReplayScope scope(trained, in_bf16);
  return run_passes(settings, world, trained, batches, tokens).is_finite();
}

void name_place(dist::World& world, const TrainedModel& trained, Incident& incident) {
  const int64_t place = first_found(world, trained.probes->first_bad().value_or(-1),
                                    "places that are not finite", incident.ranks);
  const std::string infinite = trained.fp8 != nullptr ? trained.fp8->infinite_tensor() : "";
  if (place >= 0)
    incident.place = trained.probes->name_of_place(place);
  else if (!infinite.empty())
    incident.place = infinite;
  else if (!std::isfinite(incident.loss))
    incident.place = trained.probes->name_of_place(trained.probes->places() / 2);
  // Otherwise a gradient that no further GEMM reads; `what` names it.
}

}  // namespace

void replay_step(const config::Settings& settings, dist::World& world, TrainedModel& trained,
                 const std::vector<data::Batch>& batches, double tokens, Incident& incident) {
  log_warn(
      octavo::str(incident.what, "; no update is applied. The step is done again, to see why"));
  const nn::ParamList params = all_params(trained);
  const int64_t bad =
      first_found(world, first_bad_weight(params), "weights that are not finite", incident.ranks);
  if (bad >= 0) {
    incident.place = params[static_cast<size_t>(bad)]->name;
    incident.weights_are_bad = true;
    incident.cause = Cause::kHardware;
    incident.evidence = trained.optimizer->steps() == 0
                            ? "or what the run started from: the weight itself is not finite"
                            : "the weight itself is not finite, and no update has made it so";
    trained.optimizer->drop_gradients();
    return;
  }
  const bool looked = trained.probes->looking();
  if (looked) name_place(world, trained, incident);
  Replay again{settings, world, trained, incident.step, batches, tokens};
  const bool is_finite = again.is_finite(/*in_bf16=*/false);
  if (!looked && !is_finite) name_place(world, trained, incident);
  if (is_finite) {
    incident.cause = Cause::kHardware;
    incident.evidence = "done again from the same weights and data, the step is finite";
  } else if (trained.fp8 != nullptr && again.is_finite(/*in_bf16=*/true)) {
    incident.cause = Cause::kFp8;
    incident.evidence = "it is not finite again, and finite in BF16";
  } else {
    incident.cause = Cause::kModelOrData;
    incident.evidence =
        trained.fp8 != nullptr ? "it is not finite in BF16 either" : "it is not finite again";
  }
  trained.optimizer->drop_gradients();
}

}  // namespace octavo::train
