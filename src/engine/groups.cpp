#include "engine/groups.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include <algorithm>
#include <bit>

#include "base/checked.h"
#include "engine/parallel.h"

namespace octavo::engine {
namespace {

bool one_thread_each(const Target& target, std::span<const int64_t> bounds) {
  const int64_t threads = at::get_num_threads();
  if (!target.device.is_cpu() || threads == 1 || at::in_parallel_region()) return false;
  int64_t largest = 0;
  for (size_t i = 1; i < bounds.size(); ++i) largest = std::max(largest, bounds[i] - bounds[i - 1]);
  return largest * threads <= bounds.back() - bounds.front();
}

}  // namespace

int64_t filled_rows(const Target& target, int64_t rows) {
  constexpr int64_t kFew = 8, kStep = 32;
  if (!target.device.is_cpu() || rows <= kFew) return rows;
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows)));
  return round_up(rows, std::max(kStep, power / 8));
}

void for_each_group(const Target& target, std::span<const int64_t> bounds,
                    const std::function<void(size_t group)>& work) {
  const auto groups = static_cast<int64_t>(bounds.size()) - 1;
  if (!one_thread_each(target, bounds)) {
    for (int64_t i = 0; i < groups; ++i) work(static_cast<size_t>(i));
    return;
  }
  const at::ThreadLocalState settings;
  parallel_for(0, groups, 1, [&](int64_t first, int64_t end) {
    const at::ThreadLocalStateGuard guard(settings);
    for (int64_t i = first; i < end; ++i) work(static_cast<size_t>(i));
  });
}

}  // namespace octavo::engine
