#include "engine/graph.h"

#include <dlfcn.h>

#include "base/error.h"
#include "engine/cuda/cuda_module.h"

namespace octavo::engine {

std::unique_ptr<Graph> make_graph(at::Device device) {
  OCTAVO_ASSERT(device.is_cuda());
  // The module is open since the device was found.
  const auto make = reinterpret_cast<decltype(&octavo_cuda_make_graph)>(
      dlsym(RTLD_DEFAULT, "octavo_cuda_make_graph"));
  if (make == nullptr)
    fail(ExitCode::kEnvironment, "engine",
         "the GPU module is of another version; build both again");
  return std::unique_ptr<Graph>(make(device.index()));
}

}  // namespace octavo::engine
