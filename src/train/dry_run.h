#pragma once
// Three real steps of the GPU code path on the fake CUDA device (src/fake_cuda), with tokens that
// exist nowhere: the exact memory of the real allocator, and what a step asks of the device.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/settings.h"
#include "data/token_data.h"

namespace octavo::train {

struct DryRun {
  std::string model, precision, device;
  double parameters = 0, trained = 0;
  // What holds the memory at the peak, in bytes; they add up to `reserved`.
  std::vector<std::pair<std::string, double>> parts;
  double peak = 0;      // of live tensors
  double reserved = 0;  // asked of the device: what must fit
  double memory = 0;    // of the device
  // Of the last step.
  int64_t launches = 0, gemms = 0, collectives = 0, waits = 0, allocations = 0;
  double host_seconds = 0;
};

struct TrainedModel;
// What a forward pass leaves behind for the backward pass, of all layers, on any device.
double bytes_for_backward(TrainedModel& trained, data::Loader& loader);

// The process runs on the fake CUDA device. Fails as training would when the memory is full.
DryRun dry_run(config::Settings settings);

}  // namespace octavo::train
