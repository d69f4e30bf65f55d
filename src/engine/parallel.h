#pragma once
// Loops over all threads of libtorch's OpenMP runtime. at::parallel_for cannot be used: its body is
// in a header, and without -fopenmp, which this program is not compiled with (clang's would load a
// second OpenMP runtime beside libtorch's), it runs on the calling thread alone, without a word.

#include <algorithm>
#include <cstdint>
#include <functional>

namespace octavo::engine {

/// Elements of a simple pass that are worth a thread: ten to thirty microseconds of work. With
/// fewer, waking a thread and waiting for it takes longer than it saves, and beside other programs
/// it may take a time slice.
constexpr int64_t kGrain = int64_t{1} << 15;

/// The grain of a loop over rows of `width` elements.
inline int64_t grain_of_rows(int64_t width) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(width, 1));
}

/// Calls work(first, end) for pieces of [begin, end) on as many threads as there are
/// (at::get_num_threads), but none for fewer than `grain` numbers. A thread takes the pieces of its
/// own share in their order, then what is left of the others': one whose CPU another program has
/// does not keep all waiting. One piece, on the calling thread, inside another such loop. The first
/// exception of a piece is thrown again here.
void parallel_for(int64_t begin, int64_t end, int64_t grain,
                  const std::function<void(int64_t first, int64_t end)>& work);

}  // namespace octavo::engine
