#pragma once
// What the guards of a run remember.

#include <memory>
#include <vector>

#include "dist/replicas.h"
#include "monitor/loss_watch.h"
#include "train/guards/incident.h"

namespace octavo::train {

struct Guards {
  monitor::SpikeDetector losses;             // of the steps that were applied
  std::vector<Incident> incidents;           // of this start of the run
  std::unique_ptr<dist::Replicas> replicas;  // when ranks are compared
};

}  // namespace octavo::train
