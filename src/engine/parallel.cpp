#include "engine/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <vector>

// Of the OpenMP runtime that libtorch brings, which is GNU's: what a compiler writes for
// `#pragma omp parallel`.
extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_thread_num();
}

namespace octavo::engine {
namespace {

// So many that little is left of a share when its thread loses its CPU; taking one costs nothing
// beside the work in it, which is at least a grain.
constexpr int64_t kPiecesOfShare = 8;

struct Loop {
  int64_t begin, end, grain, shares;
  const std::function<void(int64_t, int64_t)>& work;
  std::vector<std::atomic<int64_t>> taken =
      std::vector<std::atomic<int64_t>>(static_cast<size_t>(shares));
  std::mutex mutex = {};
  std::exception_ptr failed = nullptr;  // guarded by mutex

  int64_t share_begin(int64_t share) const { return begin + share * (end - begin) / shares; }

  // What is left of a share, piece by piece.
  void run_share(int64_t share) {
    const int64_t first = share_begin(share), last = share_begin(share + 1), size = last - first,
                  pieces = std::clamp<int64_t>(size / grain, 1, kPiecesOfShare);
    auto& next = taken[static_cast<size_t>(share)];
    for (int64_t piece = next++; piece < pieces; piece = next++)
      work(first + piece * size / pieces, first + (piece + 1) * size / pieces);
  }

  void run_from(int64_t number) {
    try {
      for (int64_t i = 0; i < shares; ++i) run_share((number + i) % shares);
    } catch (...) {  // nothing may leave a thread of the runtime
      const std::lock_guard lock(mutex);
      if (failed == nullptr) failed = std::current_exception();
    }
  }
};

void run_from_this_thread(void* loop) {
  const int number = omp_get_thread_num();
  const at::internal::ThreadIdGuard thread(number);
  const c10::ParallelGuard inside(true);
  static_cast<Loop*>(loop)->run_from(number);
}

}  // namespace

void parallel_for(int64_t begin, int64_t end, int64_t grain,
                  const std::function<void(int64_t, int64_t)>& work) {
  if (begin >= end) return;
  const int64_t least = std::max<int64_t>(grain, 1), most = (end - begin) / least,
                threads =
                    at::in_parallel_region() ? 1 : std::min<int64_t>(at::get_num_threads(), most);
  if (threads <= 1) return work(begin, end);
  Loop loop{begin, end, least, threads, work};
  GOMP_parallel(run_from_this_thread, &loop, static_cast<unsigned>(threads), 0);
  if (loop.failed != nullptr) std::rethrow_exception(loop.failed);
}

}  // namespace octavo::engine
