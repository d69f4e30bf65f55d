#include "dist/gloo.h"

#include <gloo/config.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <iterator>

#include "dist/listeners.h"
#include "engine/torch_version.h"

// libtorch's wheel has Gloo inside and none of its headers; Debian's are older. It works because
// ProcessGroupGloo holds Gloo's classes behind pointers alone, so that its own layout does not
// depend on theirs, and because nothing here makes or derives one: a table of virtual functions
// from the old headers would take the place of the library's. The range of torch_version.h says
// for which releases that was read; GlooHeaders.DefineNothing (tests/dist) watches the second.
static_assert(GLOO_VERSION == 500,
              "wanted the headers of Gloo 0.5 (Debian's libgloo-dev); read "
              "ProcessGroupGloo.hpp against others before raising this");

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
