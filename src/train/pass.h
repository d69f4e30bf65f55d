#pragma once
// The passes of a step: forward and backward over its micro-batches, and what came out of them on
// all ranks. They change gradients and FP8 statistics, never weights: a step can be done again.

#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "config/settings.h"
#include "dist/world.h"
#include "train/trained_model.h"

namespace octavo::train {

// What ranks tell each other with the sums of a step, so that it takes no message of its own.
struct RankNews {
  double next_tokens = 0;                     // loss tokens of this rank's next step
  std::optional<double> seconds = {};         // of this rank's last step; all tell, or none
  bool save_due = false, saves_fail = false;  // as Progress has them
};

// What the host must know of a step before it updates: read in one copy, the only time that a step
// waits for its device.
struct StepStats {
  double loss = 0, z = 0, penalty = 0;        // sums over tokens, or micro-batches
  bool has_penalty = false;                   // of activations
  double probes = 0;                          // finite when all GEMMs and all ranks' gradients are
  bool stop_asked = false;                    // some rank was asked to stop
  bool save_due = false, saves_fail = false;  // of any rank
  optim::Optimizer::Norm norm;
  double next_tokens = 0;            // of the next step, on all ranks
  std::vector<double> rank_seconds;  // of each rank's last step; empty when none told
  std::vector<double> routing;       // sums of Routing::end_pass(); empty without experts
  std::vector<double> sources;       // sums of sums_by_source(); empty without a mixture

  bool is_finite() const {
    return std::isfinite(loss) && std::isfinite(probes) && norm.not_finite.empty();
  }
};

// All ranks call these together. `tokens`: the loss tokens of the step, on all ranks. `news` is
// asked once the passes are on their way, and only when there are several ranks.
void begin_step(dist::World& world, TrainedModel& trained, int64_t step, bool repeated = false);
StepStats run_passes(const config::Settings& settings, dist::World& world, TrainedModel& trained,
                     const std::vector<data::Batch>& batches, double tokens,
                     const std::function<RankNews()>& news = {});

// A forward and backward pass whose gradients are not for learning: what it takes is measured.
void try_pass(const config::Settings& settings, int ranks, TrainedModel& trained,
              const data::Batch& batch);

}  // namespace octavo::train
