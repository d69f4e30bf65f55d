#pragma once
// Experts that the tokens of the last steps left out, or that most of them went through.

#include <cstdint>
#include <vector>

#include "monitor/step_record.h"

namespace octavo::monitor {

class ExpertWatch {
 public:
  static constexpr size_t kSteps = 20;  // that a verdict is of

  // The worst expert of all layers. Nothing is bad or good before kSteps are known.
  struct Verdict {
    bool bad = false, good = false;
    int64_t count = 0;              // experts as bad as that
    int64_t layer = 0, expert = 0;  // the worst; layers among those with experts
    double share = 0, even = 0;     // of the layer's tokens that went through it, and with even use
  };
  struct Verdicts {
    Verdict idle;     // less than a hundredth of what even use would give
    Verdict crowded;  // more than half of the way from even use to every token
  };
  Verdicts add(const std::vector<ExpertLoad>& loads);

 private:
  std::vector<std::vector<double>> steps_;  // a ring: the shares of all experts, layer by layer
  size_t next_ = 0;
};

}  // namespace octavo::monitor
