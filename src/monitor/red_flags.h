#pragma once
// Red flags: what a person should look at, each with its remedy in one line. Fed with the records
// of a run, it reads nothing else and writes nothing. A trouble that lasts is one flag.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "monitor/expert_watch.h"
#include "monitor/loss_watch.h"
#include "monitor/speed_watch.h"
#include "monitor/step_record.h"

namespace octavo::monitor {

struct FlagOptions {
  int64_t plateau_steps = 4000;  // 0: no such flag
  double bf16_baseline = 0;      // tokens a second; 0: nothing to compare with
  double uniform_loss = 0;       // of a model that guesses: ln(vocabulary); 0: no such flag
  int64_t warmup_steps = 0;      // of the learning rate
};

class RedFlags {
 public:
  explicit RedFlags(const FlagOptions& options);

  // A step of this run before it was resumed: known, and not judged.
  void remember(const StepRecord& record);
  std::vector<Flag> on_step(const StepRecord& record);
  std::vector<Flag> on_eval(const EvalRecord& record);
  // The guard ended the run in this step: `seen` is what it says.
  // The run ends: by losses that spike, or by numbers that are not finite.
  Flag on_guard(int64_t step, const std::string& seen, bool spikes);

  // What to say at the end of a run whose last losses are worse than guessing; "" when they are
  // not.
  std::string final_remark() const;

  // Troubles that have ended since they were last asked for: a flag each, marked `over`.
  std::vector<Flag> take_ended(int64_t step);
  std::vector<std::string> open() const;  // names of those that last

  int64_t total() const { return total_; }
  Json receipt() const;  // how many of each

 private:
  using Flags = std::vector<Flag>;
  // Calls visit(name, RaiseOnce) for every trouble that lasts.
  template <typename Self, typename Visit>
  static void visit_lasting(Self& self, Visit&& visit);
  void raise(Flags& flags, int64_t step, const char* name, std::string seen, std::string remedy);
  void check_loss(const StepRecord& record, Flags& flags);
  void check_uniform(int64_t step, const char* what, double loss, bool worse, bool better,
                     Flags& flags);
  void check_norm(const StepRecord& record, Flags& flags);
  void check_fp8(const StepRecord& record, Flags& flags);
  void check_channels(const StepRecord& record, Flags& flags);
  void check_speed(const StepRecord& record, Flags& flags);
  void check_experts(const StepRecord& record, Flags& flags);
  void check_ranks(const StepRecord& record, Flags& flags);
  void check_saves(const StepRecord& record, Flags& flags);

  SpikeDetector spikes_;
  ExplosionDetector norms_;
  PlateauDetector plateau_;
  UniformDetector uniform_;
  std::string worse_than_uniform_;  // what was, of the last losses; "": nothing
  LostTime waits_{0.2};
  SlowRankDetector ranks_;
  ExpertWatch experts_;
  SlowerDetector speed_;
  std::map<std::string, double> first_ratios_;  // of channels, by layer: in its first statistics
  RaiseOnce spike_, explosion_, flat_{2}, saturating_{1}, underflowing_{1}, amplified_{1},
      starving_, slow_rank_, slower_, unsaved_{1}, not_uploaded_{1}, bad_evaluation_{1},
      uniform_trouble_, collapsed_, idle_expert_, crowded_expert_;
  bool first_step_ = true, after_spike_ = false;
  int64_t total_ = 0;
  std::map<std::string, int64_t> counts_, raised_at_;  // by name; the step of the last one
};

}  // namespace octavo::monitor
