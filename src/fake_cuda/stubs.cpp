// Entry points that have no meaning here. Each does nothing, says success, and leaves its name in
// the record as unexpected, so that a test sees what a program relied on. The lists name them;
// CUDA's headers must not be included, because a stub has no parameters.
#include <string>
#include <unordered_set>

#include "fake_cuda/driver.h"

namespace octavo::fake_cuda {
void record_unexpected(const char* name);
}

#define OCTAVO_STUB(name)                        \
  extern "C" int name() {                        \
    octavo::fake_cuda::record_unexpected(#name); \
    return 0;                                    \
  }
// Settings and hints that change nothing a test could see, so they are not worth a line in the
// record.
#define OCTAVO_HINT(name) \
  extern "C" int name() { \
    return 0;             \
  }
#include "fake_cuda/stubs_driver.def"
#include "fake_cuda/stubs_libraries.def"
#include "fake_cuda/stubs_runtime.def"
#undef OCTAVO_STUB
#undef OCTAVO_HINT

bool octavo::fake_cuda::is_stub(const std::string& name) {
#define OCTAVO_STUB(entry) #entry,
#define OCTAVO_HINT(entry)
  static const std::unordered_set<std::string> names = {
#include "fake_cuda/stubs_driver.def"
  };
#undef OCTAVO_STUB
#undef OCTAVO_HINT
  return names.contains(name);
}
