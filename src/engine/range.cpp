#include "engine/range.h"

#include <nvtx3/nvToolsExt.h>

#include <string>

#include "base/heartbeat.h"
#include "engine/trace.h"

namespace octavo::engine {

Range::Range(const char* name, const char* sign, int64_t number) {
  heartbeat::begin(sign, number);
  nvtxRangePushA(name);
  if (!trace::is_on()) return;
  traced_ = trace::number_of_name(name);
  begun_ns_ = trace::now_ns();
}

Range::Range(const char* name) : Range(name, name, -1) {}

Range::Range(const char* name, int64_t number)
    : Range((std::string(name) + " " + std::to_string(number)).c_str(), name, number) {}

Range::~Range() {
  if (traced_ != 0) trace::add_slice(traced_, begun_ns_);
  nvtxRangePop();
  heartbeat::end();
}

}  // namespace octavo::engine
