#include "dist/content_hash.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "base/random.h"

namespace octavo::dist {
namespace {

// Odd: what came before counts times this.
constexpr int64_t kBetweenChunks = 0x1e3779b97f4a7c15;
// Not 32: where both halves of a word are numbers, two signs that changed would cancel.
constexpr int kShift = 31;
constexpr int64_t kShiftedIn = (int64_t{1} << (64 - kShift)) - 1;

// Products of a chunk are in memory for a moment: on a CPU they should stay in its cache, on a GPU
// there should be few launches.
int64_t words_at_a_time(at::Device device) {
  return device.is_cpu() ? int64_t{1} << 16 : int64_t{1} << 20;
}

at::Tensor odd_numbers(int64_t count) {
  at::Tensor numbers = at::empty({count}, at::kLong);
  auto* number = numbers.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i)
    number[i] = static_cast<int64_t>(mix64(static_cast<uint64_t>(i) + 1) | 1);
  return numbers;
}

// As integers of 64 bits, or of fewer where the bytes do not divide by eight.
at::Tensor words_of(const at::Tensor& values) {
  OCTAVO_ASSERT(values.is_contiguous());
  const at::Tensor flat = values.view({-1});
  const auto size = static_cast<int64_t>(flat.element_size());
  const int64_t bytes = flat.numel() * size, begin = flat.storage_offset() * size;
  if (bytes % 8 == 0 && begin % 8 == 0) return flat.view(at::kLong);
  return flat.view(size == 4 ? at::kInt : size == 2 ? at::kShort : at::kChar);
}

}  // namespace

ContentHash::ContentHash(at::Device device)
    : factors_(odd_numbers(words_at_a_time(device)).to(device)) {}

at::Tensor ContentHash::of(const at::Tensor& values) const {
  const at::NoGradGuard no_grad;
  at::Tensor total = at::zeros({}, factors_.options());
  if (values.numel() == 0) return total;
  const at::Tensor words = words_of(values);
  const int64_t count = words.numel(), most = factors_.numel();
  for (int64_t first = 0; first < count; first += most) {
    const int64_t here = std::min(most, count - first);
    const at::Tensor x = words.narrow(0, first, here).to(at::kLong);
    // The shift copies the sign, which would give a word and its complement one y.
    const at::Tensor y =
        at::bitwise_right_shift(x, kShift).bitwise_and_(kShiftedIn).bitwise_xor_(x);
    total = at::add(y.mul_(factors_.narrow(0, 0, here)).sum(), total, kBetweenChunks);
  }
  return total;
}

}  // namespace octavo::dist
