// Where there is no libtorch there is no OpenMP runtime either: every loop is one piece, on the
// thread that called.

#include "engine/parallel.h"

namespace octavo::engine {

void parallel_for(int64_t begin, int64_t end, int64_t,
                  const std::function<void(int64_t, int64_t)>& work) {
  if (begin < end) work(begin, end);
}

}  // namespace octavo::engine
