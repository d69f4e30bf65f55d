#pragma once
// Loops over all threads of libtorch's OpenMP runtime. at::parallel_for cannot be used: its body is
// in a header, and without -fopenmp, which this program is not compiled with (clang's would load a
// second OpenMP runtime beside libtorch's), it runs on the calling thread alone, without a word.

#include <cstdint>
#include <functional>

namespace octavo::engine {

/// Calls work(first, end) for parts of [begin, end), each on a thread of its own: as many parts as
/// there are threads (at::get_num_threads), but none of fewer than `grain` numbers. One part, on
/// the calling thread, inside another such loop. The first exception of a part is thrown again
/// here.
void parallel_for(int64_t begin, int64_t end, int64_t grain,
                  const std::function<void(int64_t first, int64_t end)>& work);

}  // namespace octavo::engine
