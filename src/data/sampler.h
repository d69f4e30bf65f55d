#pragma once
// The order in which samples are trained on: a new shuffle of [0, samples) every epoch (order.h),
// computed on the fly. The order is global: batch k of `rows * world` samples is positions
// [k * rows * world, …), rank r takes rows [r * rows, (r + 1) * rows) of it. So any number of ranks
// trains on the same batches in the same order. Batches may cross an epoch's end: positions just
// continue. A run of whole epochs ends at a position, not after a number of batches
// (train/run_schedule.h).

#include <cstdint>
#include <memory>

#include "data/order.h"
#include "data/permutation.h"

namespace octavo::data {

class Mixture;

// Where training stands in the data, and in which order: all a checkpoint needs. Positions of
// checkpoints from before there was a choice are in the uniform order.
struct Position {
  uint64_t samples = 0;  // taken so far, over all epochs and ranks
  Order order = {};
  // Of several sources with weights (mixture.h), which have orders of their own; null: one source.
  std::shared_ptr<const Mixture> mixture = nullptr;
};

class Sampler {
 public:
  // `samples` per epoch; every epoch has its own key derived from the seed.
  Sampler(uint64_t samples, uint64_t seed, bool shuffle, const Order& order = {});
  // The sample at a global position (position / samples() is the epoch).
  uint64_t at(uint64_t position) const;
  // The position in `epoch` at which `sample` comes.
  uint64_t position_of(uint64_t epoch, uint64_t sample) const;
  uint64_t epoch_of(uint64_t position) const { return position / samples_; }
  uint64_t samples() const { return samples_; }

 private:
  uint64_t key_of(uint64_t epoch) const;

  uint64_t samples_, seed_;
  bool shuffle_;
  Order order_;
};

}  // namespace octavo::data
