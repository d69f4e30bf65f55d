#pragma once
// The order in which samples are trained on: a keyed permutation of [0, samples) per epoch,
// computed on the fly (a Feistel network with cycle walking). Constant memory at any size, O(1)
// seek, invertible. The order is global: batch k of `rows * world` samples is positions [k * rows *
// world, …), rank r takes rows [r * rows, (r + 1) * rows) of it. So any number of ranks trains on
// the same batches in the same order. Batches may cross an epoch's end: positions just continue. A
// run of whole epochs ends at a position, not after a number of batches (train/run_schedule.h).

#include <cstdint>

namespace octavo::data {

class Permutation {
 public:
  // 1 <= size <= 2^62.
  Permutation(uint64_t size, uint64_t key);
  uint64_t operator()(uint64_t index) const;  // [0, size) -> [0, size)
  uint64_t inverse(uint64_t value) const;
  uint64_t size() const { return size_; }

 private:
  uint64_t encrypt(uint64_t block) const;
  uint64_t decrypt(uint64_t block) const;

  uint64_t size_;
  uint64_t keys_[6];
  int half_bits_;
};

// Where training stands in the data: all a checkpoint needs.
struct Position {
  uint64_t samples = 0;  // taken so far, over all epochs and ranks
};

class Sampler {
 public:
  // `samples` per epoch; every epoch has its own key derived from the seed.
  Sampler(uint64_t samples, uint64_t seed, bool shuffle);
  // The sample at a global position (position / samples() is the epoch).
  uint64_t at(uint64_t position) const;
  // The position in `epoch` at which `sample` comes.
  uint64_t position_of(uint64_t epoch, uint64_t sample) const;
  uint64_t epoch_of(uint64_t position) const { return position / samples_; }
  uint64_t samples() const { return samples_; }

 private:
  Permutation order_of(uint64_t epoch) const;

  uint64_t samples_, seed_;
  bool shuffle_;
};

}  // namespace octavo::data
