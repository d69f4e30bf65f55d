#include "dist/gloo.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace octavo::dist {

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, const GlooOptions& options) {
  auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
  gloo->devices = {c10d::ProcessGroupGloo::createDeviceForHostname(options.address)};
  gloo->threads = 1;  // collectives of a group end in the order in which they began
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, gloo);
}

}  // namespace octavo::dist
