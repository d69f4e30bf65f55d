#include "dist/gloo.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <iterator>

#include "dist/listeners.h"

namespace octavo::dist {

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, const GlooOptions& options) {
  const std::set<int> before = listening_sockets();
  auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
  gloo->devices = {c10d::ProcessGroupGloo::createDeviceForHostname(options.address)};
  gloo->threads = 1;  // collectives of a group end in the order in which they began
  auto made = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, gloo);
  // All ranks of the group are connected by now.
  const std::set<int> after = listening_sockets();
  std::set<int> of_gloo;
  std::ranges::set_difference(after, before, std::inserter(of_gloo, of_gloo.end()));
  refuse_new_connections(of_gloo);
  return made;
}

}  // namespace octavo::dist
