#include "base/error.h"

#include <cstdio>

namespace octavo {

void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "octavo: this is a bug in octavo: %s does not hold at %s:%d\n", expression,
               file, line);
  std::abort();
}

}  // namespace octavo
