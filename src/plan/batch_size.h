#pragma once
// batch_size and gradient_accumulation_steps as train would settle them from auto_batch_size,
// max_batch_size and target_effective_batch_size, with a forecast where train measures.

#include <cstdint>
#include <functional>
#include <string>

#include "config/settings.h"

namespace octavo::plan {

struct BatchChoice {
  int64_t batch = 1, accumulation = 1;
  std::string why;  // what chose them; "": batch_size as given
};

// `bytes` forecasts the memory of a step, which for the same accumulation grows with the batch;
// `limit`: what there is. Nothing fits: the smallest batch there is.
BatchChoice chosen_batch(const config::Settings& settings,
                         const std::function<double(const BatchChoice&)>& bytes, double limit);

}  // namespace octavo::plan
