#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace octavo::optim {

double learning_rate(int64_t step, const Schedule& schedule) {
  const auto [max_lr, min_lr_ratio, warmup_steps, max_steps] = schedule;
  if (step < warmup_steps)
    return max_lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  const double min_lr = max_lr * min_lr_ratio;
  if (step >= max_steps) return min_lr;
  const double progress =
      static_cast<double>(step - warmup_steps) / static_cast<double>(max_steps - warmup_steps);
  return min_lr + 0.5 * (1 + std::cos(std::numbers::pi * progress)) * (max_lr - min_lr);
}

int64_t automatic_warmup(int64_t max_steps) {
  return std::clamp<int64_t>(max_steps / 20, 0, 2000);
}

}  // namespace octavo::optim
