#include "engine/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "base/checked.h"

// Of the OpenMP runtime that libtorch brings, which is GNU's: what a compiler writes for
// `#pragma omp parallel`.
extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_thread_num();
int omp_get_num_threads();
}

namespace octavo::engine {
namespace {

struct Loop {
  int64_t begin, end;
  const std::function<void(int64_t, int64_t)>& work;
  std::mutex mutex = {};
  std::exception_ptr failed = nullptr;  // guarded by mutex

  void run_part(int64_t number, int64_t parts) {
    const int64_t size = ceil_div(end - begin, parts), first = begin + number * size;
    if (first >= end) return;
    try {
      work(first, std::min(first + size, end));
    } catch (...) {  // nothing may leave a thread of the runtime
      const std::lock_guard lock(mutex);
      if (failed == nullptr) failed = std::current_exception();
    }
  }
};

void run_part_of_this_thread(void* loop) {
  const int number = omp_get_thread_num();
  const at::internal::ThreadIdGuard thread(number);
  const c10::ParallelGuard inside(true);
  static_cast<Loop*>(loop)->run_part(number, omp_get_num_threads());
}

}  // namespace

void parallel_for(int64_t begin, int64_t end, int64_t grain,
                  const std::function<void(int64_t, int64_t)>& work) {
  if (begin >= end) return;
  const int64_t most = (end - begin) / std::max<int64_t>(grain, 1),
                threads =
                    at::in_parallel_region() ? 1 : std::min<int64_t>(at::get_num_threads(), most);
  if (threads <= 1) return work(begin, end);
  Loop loop{begin, end, work};
  GOMP_parallel(run_part_of_this_thread, &loop, static_cast<unsigned>(threads), 0);
  if (loop.failed != nullptr) std::rethrow_exception(loop.failed);
}

}  // namespace octavo::engine
