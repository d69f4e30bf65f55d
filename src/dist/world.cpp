#include "dist/world.h"

#include <cstdlib>
#include <string>

#include "base/error.h"

namespace octavo::dist {

World World::from_environment() {
  const char* size = std::getenv("WORLD_SIZE");
  if (size != nullptr && std::string(size) != "1")
    fail(ExitCode::kUsage, "dist", "this version trains on one rank, found WORLD_SIZE=", size,
         "; start octavo without a launcher, or unset WORLD_SIZE");
  return {};
}

}  // namespace octavo::dist
