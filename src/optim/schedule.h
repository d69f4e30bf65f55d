#pragma once
// The learning rate as a pure function of the step: nothing to save, nothing to resume.

#include <cstdint>

namespace octavo::optim {

struct Schedule {
  double max_lr = 6e-4;
  double min_lr_ratio = 0.1;  // the cosine ends at max_lr * min_lr_ratio
  int64_t warmup_steps = 0;
  int64_t max_steps = 0;  // where the cosine ends
};

// Step 0 is the first. Linear warm-up (step 0 gets 1 / warmup_steps of max_lr, never 0), then half
// a cosine from max_lr at step warmup_steps to the minimum at step max_steps, which holds from
// there on.
double learning_rate(int64_t step, const Schedule& schedule);

// What warmup_steps -1 means: a twentieth of the run, at most 2000 steps.
int64_t automatic_warmup(int64_t max_steps);

}  // namespace octavo::optim
