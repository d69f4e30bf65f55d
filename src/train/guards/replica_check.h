#pragma once
// Comparing the replicas of a run (dist/replicas.h says what that can find): every
// replica_check_freq steps, and before every checkpoint, so that none holds what one rank alone
// has.

#include <vector>

#include "base/json.h"
#include "dist/replicas.h"
#include "train/run.h"

namespace octavo::train {

// Says what is compared and what has no replica, and compares what the run starts from. Does
// nothing for one rank and with replica_check_freq 0.
void start_replica_checks(Run& run);
// After a step; `saves`: a checkpoint is about to be written. Ends the run with exit code 4, on all
// ranks together, when replicas differ.
void check_replicas(Run& run, bool saves);

// What run.guards.replicas compares, for who wants to do something else about a difference.
std::vector<dist::Replicated> replicated_tensors(const config::Settings& settings,
                                                 dist::World& world, TrainedModel& trained);

Json replicas_receipt(const Guards& guards);

}  // namespace octavo::train
