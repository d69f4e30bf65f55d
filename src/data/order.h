#pragma once
// How the samples of an epoch are shuffled: each by itself (small data), or in two levels, so that
// what lies together on disk is read together.
//
// Two levels: the samples are cut into blocks of about 1 MiB, and the blocks are permuted. The
// permuted sequence is cut into as many equal stripes as there are lanes, and each lane walks along
// its stripe. A step takes `run` samples in turn from every lane, so a batch comes from as many
// places of the data as there are lanes. Inside a stripe the samples of `window` consecutive blocks
// are permuted. A rank takes neighbouring samples of a step, that is a few lanes: it needs the
// blocks of a few windows in memory and no others, whatever the size of the data.
//
// All of it is arithmetic: O(1) state, any position at once, each sample exactly once an epoch. The
// order belongs to the run and is kept in its checkpoints; the number of ranks is not part of it.

#include <cstdint>

#include "data/permutation.h"

namespace octavo::data {

struct Order {
  uint64_t block = 0;   // samples in a block; 0: every sample is permuted by itself
  uint64_t window = 0;  // blocks whose samples are mixed
  uint64_t step = 0;    // samples of a step when the run began
  uint64_t run = 0;     // samples in a row, of a step, that come from one lane; divides `step`

  bool is_uniform() const { return block == 0; }
  uint64_t lanes() const { return is_uniform() ? 1 : step / run; }
  bool operator==(const Order&) const = default;
};

// Of tokens that a uniform shuffle is taken for: they stay in the page cache.
constexpr uint64_t kUniformBytes = uint64_t{1} << 30;
constexpr uint64_t kOrderBlockBytes = uint64_t{1} << 20;
// For a new run.
Order order_for(uint64_t samples, uint64_t sample_bytes, uint64_t step_samples);
// Of numbers from a file: what is wrong with them; "": nothing.
const char* problem_of(const Order& order);

// One epoch in two levels. `first_row`: of the step in which it begins, so that a rank keeps its
// lanes in every epoch.
class BlockOrder {
 public:
  BlockOrder(uint64_t samples, uint64_t key, const Order& order, uint64_t first_row = 0);
  uint64_t at(uint64_t index) const;  // [0, samples) -> [0, samples)
  uint64_t inverse(uint64_t sample) const;

 private:
  struct Window {
    uint64_t begin;  // its first place in the sequence of permuted blocks
    Permutation order;
  };
  uint64_t from_lane(uint64_t index) const;  // a place of the epoch -> one in the sequence
  uint64_t to_lane(uint64_t place) const;
  uint64_t lane_begin(uint64_t lane) const;  // its first place
  // The last block is short, and comes somewhere in the sequence. Slots are places as if it were
  // whole.
  uint64_t slot_of(uint64_t place) const { return place < gap_begin_ ? place : place + gap_; }
  uint64_t place_of(uint64_t slot) const { return slot < gap_begin_ ? slot : slot - gap_; }
  Window window_at(uint64_t slot) const;

  uint64_t samples_, key_;
  Order order_;
  uint64_t first_row_;
  Permutation blocks_;
  uint64_t gap_, gap_begin_;
};

}  // namespace octavo::data
