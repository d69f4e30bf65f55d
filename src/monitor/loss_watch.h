#pragma once
// What the losses and gradient norms of the last steps say about the next one.

#include <cstdint>
#include <vector>

#include "monitor/window.h"

namespace octavo::monitor {

// A loss that stands out from those of the last 128 steps: by six sigmas, and by a tenth. It can be
// asked before the step's update: judge() changes nothing, add() comes after.
class SpikeDetector {
 public:
  struct Verdict {
    bool spike = false;
    bool usual = true;  // within three sigmas
    double median = 0, sigmas = 0;
  };
  Verdict judge(double loss) const;
  void add(double loss);  // what is not finite is left out
  // What add() needs to be told to be in the same state again, oldest first.
  std::vector<double> recent() const { return losses_.in_order(); }

 private:
  Window losses_{128};
};

// A model that is worse than one that gives every token the same probability: its loss is above
// ln(vocabulary). A new model begins near there, so it is given time: little when it is far above.
class UniformDetector {
 public:
  // `uniform`: ln(vocabulary); 0: never a verdict. `warmup_steps`: of the learning rate.
  UniformDetector(double uniform, int64_t warmup_steps)
      : uniform_(uniform), warmup_steps_(warmup_steps) {}
  struct Verdict {
    bool worse = false, better = false;
    double loss = 0;  // the median of the last ones
  };
  Verdict add(int64_t step, double loss);                  // of a step
  bool worse_evaluation(int64_t step, double loss) const;  // one is judged by itself
  double uniform() const { return uniform_; }

 private:
  double limit(int64_t step) const;
  double uniform_;
  int64_t warmup_steps_;
  Window losses_{8};
};

// A gradient norm ten times the usual one of the last 128 steps; in the first steps of a run a
// hundred times the least.
class ExplosionDetector {
 public:
  struct Verdict {
    bool explodes = false, usual = true;
    double reference = 0;
  };
  Verdict judge(double norm) const;
  void add(double norm);

 private:
  Window log_norms_{128};
};

// No progress: the mean loss of the last half of `steps` is not lower than that of the half before
// by more than chance would make it, while the learning rate is still more than half its largest.
class PlateauDetector {
 public:
  explicit PlateauDetector(int64_t steps);  // 0: never
  struct Verdict {
    bool looked = false;  // it looks every now and then
    bool plateau = false, improves = false;
    double before = 0, after = 0;
  };
  Verdict add(double loss, double learning_rate);

 private:
  size_t steps_, stride_;
  size_t seen_ = 0;
  double largest_rate_ = 0;
  std::vector<double> losses_;  // a ring
};

}  // namespace octavo::monitor
