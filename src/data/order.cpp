#include "data/order.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "base/random.h"

namespace octavo::data {
namespace {

constexpr uint64_t kWindowSalt = 0x6f637461766f2f32;  // "octavo/2": changing it changes orders
// A lane's stripe ends inside a window, whose blocks the next lane has read long ago. With so many
// blocks to a lane's window that costs 1/16.
constexpr uint64_t kWindowsOfALane = 16;
// Samples in a row from one lane, at most, where data is large: the GPUs of a node.
constexpr uint64_t kLongestRun = 8;
constexpr uint64_t kLargestOrder = uint64_t{1} << 30;  // of each number: products do not overflow

constexpr uint64_t kFewLanes = 64;

// Blocks of 1 MiB that a step draws from: what a rank has in memory is its share of them.
uint64_t mixed_blocks(uint64_t step_samples) {
  return step_samples <= 64 ? 64 : std::max<uint64_t>(128, step_samples / 4);
}

// The fewest samples in a row that leave `lanes` or fewer; a divisor of `step`.
uint64_t run_for(uint64_t step, uint64_t lanes) {
  uint64_t run = ceil_div(step, lanes);
  while (step % run != 0) ++run;
  return run;
}

}  // namespace

Order order_for(uint64_t samples, uint64_t sample_bytes, uint64_t step_samples) {
  OCTAVO_ASSERT(samples > 0 && sample_bytes > 0 && step_samples > 0);
  if (samples <= kUniformBytes / sample_bytes || step_samples > kLargestOrder) return {};
  const uint64_t block = std::max<uint64_t>(1, kOrderBlockBytes / sample_bytes);
  const uint64_t blocks = ceil_div(samples, block);
  const uint64_t most = std::max<uint64_t>(1, blocks / kWindowsOfALane);
  const uint64_t mixed = std::clamp<uint64_t>(
      mixed_blocks(step_samples) * kOrderBlockBytes / std::max(kOrderBlockBytes, sample_bytes), 1,
      most);
  uint64_t run = run_for(step_samples, std::min(mixed, kFewLanes));
  if (run > kLongestRun) {  // a large step: of many ranks, with a few lanes each
    run = kLongestRun;
    while (step_samples % run != 0) --run;
    if (step_samples / run > most) run = run_for(step_samples, most);
  }
  return {.block = block,
          .window = std::max<uint64_t>(1, mixed / (step_samples / run)),
          .step = step_samples,
          .run = run};
}

const char* problem_of(const Order& order) {
  if (order.is_uniform()) return "";
  for (const uint64_t number : {order.block, order.window, order.step, order.run})
    if (number < 1 || number > kLargestOrder) return "wanted numbers from 1 to 2^30";
  return order.step % order.run == 0 ? "" : "wanted a step that is a multiple of the run";
}

BlockOrder::BlockOrder(uint64_t samples, uint64_t key, const Order& order, uint64_t first_row)
    : samples_(samples),
      key_(key),
      order_(order),
      first_row_(first_row),
      blocks_(ceil_div(samples, order.block), key),
      gap_(blocks_.size() * order.block - samples),
      gap_begin_((blocks_.inverse(blocks_.size() - 1) + 1) * order.block - gap_) {
  OCTAVO_ASSERT(problem_of(order)[0] == '\0' && first_row < order.step);
}

// Rounds are steps: the first lacks the rows before the epoch, the last those behind it. A lane's
// places are its samples, round by round.
uint64_t BlockOrder::lane_begin(uint64_t lane) const {
  const uint64_t rounds = (first_row_ + samples_) / order_.step;
  const uint64_t rest = (first_row_ + samples_) % order_.step;
  const uint64_t row = lane * order_.run;
  return row * rounds + std::min(row, rest) - std::min(row, first_row_);
}

uint64_t BlockOrder::from_lane(uint64_t index) const {
  const uint64_t round = (first_row_ + index) / order_.step;
  const uint64_t row = (first_row_ + index) % order_.step;
  const uint64_t lane = row / order_.run, own = lane * order_.run;
  const uint64_t lacking = std::clamp(first_row_, own, own + order_.run) - own;
  return lane_begin(lane) + round * order_.run + (row - own) - lacking;
}

uint64_t BlockOrder::to_lane(uint64_t place) const {
  uint64_t lane = 0, end = order_.lanes();  // the last lane that begins at or before the place
  while (end - lane > 1) {
    const uint64_t middle = (lane + end) / 2;
    (lane_begin(middle) <= place ? lane : end) = middle;
  }
  const uint64_t own = lane * order_.run;
  const uint64_t lacking = std::clamp(first_row_, own, own + order_.run) - own;
  const uint64_t inside = place - lane_begin(lane) + lacking;
  return inside / order_.run * order_.step + own + inside % order_.run - first_row_;
}

BlockOrder::Window BlockOrder::window_at(uint64_t slot) const {
  const uint64_t number = slot / order_.block / order_.window;
  const uint64_t first = number * order_.window;
  const uint64_t end = std::min(first + order_.window, blocks_.size());
  const uint64_t begin = place_of(first * order_.block);
  return {begin, Permutation(place_of(end * order_.block) - begin,
                             mix64(mix64(key_ ^ kWindowSalt) + number * kGolden))};
}

uint64_t BlockOrder::at(uint64_t index) const {
  const uint64_t place = from_lane(index);
  const Window window = window_at(slot_of(place));
  const uint64_t slot = slot_of(window.begin + window.order(place - window.begin));
  return blocks_(slot / order_.block) * order_.block + slot % order_.block;
}

uint64_t BlockOrder::inverse(uint64_t sample) const {
  const uint64_t slot =
      blocks_.inverse(sample / order_.block) * order_.block + sample % order_.block;
  const Window window = window_at(slot);
  return to_lane(window.begin + window.order.inverse(place_of(slot) - window.begin));
}

}  // namespace octavo::data
