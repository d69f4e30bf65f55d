#include "data/sampler.h"

#include "base/error.h"
#include "base/random.h"

namespace octavo::data {
namespace {

constexpr uint64_t kOrderSalt = 0x6f637461766f2f31;  // "octavo/1": changing it changes every order

}  // namespace

Sampler::Sampler(uint64_t samples, uint64_t seed, bool shuffle, const Order& order)
    : samples_(samples), seed_(seed), shuffle_(shuffle), order_(order) {
  if (samples == 0 || samples > kMaxSamples)
    fail(ExitCode::kUsage, "data", "wanted between 1 and 2^62 samples in an epoch, found ", samples,
         "; prepare more text or shorten max_seq_length");
}

uint64_t Sampler::key_of(uint64_t epoch) const {
  return mix64(mix64(seed_ ^ kOrderSalt) + epoch * kGolden);
}

uint64_t Sampler::at(uint64_t position) const {
  const uint64_t index = position % samples_;
  if (!shuffle_) return index;
  const uint64_t key = key_of(epoch_of(position));
  return order_.is_uniform()
             ? Permutation(samples_, key)(index)
             : BlockOrder(samples_, key, order_, (position - index) % order_.step).at(index);
}

uint64_t Sampler::position_of(uint64_t epoch, uint64_t sample) const {
  const uint64_t first = epoch * samples_;
  if (!shuffle_) return first + sample;
  const uint64_t key = key_of(epoch);
  return first + (order_.is_uniform()
                      ? Permutation(samples_, key).inverse(sample)
                      : BlockOrder(samples_, key, order_, first % order_.step).inverse(sample));
}

}  // namespace octavo::data
