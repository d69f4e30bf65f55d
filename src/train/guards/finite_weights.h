#pragma once
// Whether the weights that a checkpoint would hold are numbers.

#include <string>

#include "dist/world.h"
#include "train/trained_model.h"

namespace octavo::train {

// The first trained weight that has a NaN or an infinity on any rank; "" when all are finite. All
// ranks call it together, and it waits for the device.
std::string weight_not_finite(dist::World& world, const TrainedModel& trained);

}  // namespace octavo::train
