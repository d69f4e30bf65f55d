#include "engine/range.h"

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace octavo::engine {

Range::Range(const char* name) {
  nvtxRangePushA(name);
}

Range::Range(const char* name, int64_t number)
    : Range((std::string(name) + " " + std::to_string(number)).c_str()) {}

Range::~Range() {
  nvtxRangePop();
}

}  // namespace octavo::engine
