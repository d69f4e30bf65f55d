#pragma once
// The learning-rate schedule of a run: from its settings, into its checkpoints, and what a resume
// with other settings makes of it.

#include <optional>
#include <string>

#include "base/json.h"
#include "config/settings.h"
#include "optim/schedule.h"

namespace octavo::train {

// Refuses a warm-up that is longer than the run, whose learning_rate would never be reached.
optim::Schedule schedule_of(const config::Settings& settings, int64_t max_steps);

// A checkpoint's part, and back. Checkpoints of older versions have the run's settings alone:
// nothing when its length was in epochs.
Json schedule_json(const optim::Schedule& schedule);
std::optional<optim::Schedule> saved_schedule(const Json& extra, const std::string& source);

// What a run that is at `step` is told when its schedule is not the checkpoint's; "" when it is.
std::string changed_schedule(const optim::Schedule& then, const optim::Schedule& now, int64_t step);

}  // namespace octavo::train
