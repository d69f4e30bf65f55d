// The C++ side of hub_download.py: resolves names as the verbs do.
//   model NAME [REVISION] [tokenizer]    prints the folder
//   dataset NAME SPLIT [SUBSET]          prints the files, one a line
// The environment says where the cache and the server are.

#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/signals.h"
#include "hub/hub.h"
#include "tool_main.h"

namespace octavo::hub {
namespace {

void run(const std::vector<std::string>& arguments) {
  const auto argument = [&](size_t i) { return i < arguments.size() ? arguments[i] : ""; };
  Options options;
  if (argument(0) == "model" && arguments.size() >= 2) {
    if (!argument(2).empty()) options.revision = argument(2);
    if (argument(3) == "tokenizer") options.parts = Parts::kTokenizer;
    std::puts(resolve_model(argument(1), options).c_str());
  } else if (argument(0) == "dataset" && arguments.size() >= 3) {
    options.subset = argument(3);
    for (const fs::path& file : resolve_dataset(argument(1), argument(2), options).files)
      std::puts(file.c_str());
  } else {
    fail(ExitCode::kUsage, "hub_tool",
         "wanted model NAME [REVISION] [tokenizer] | dataset NAME SPLIT [SUBSET]");
  }
}

}  // namespace
}  // namespace octavo::hub

int main(int argc, char** argv) {
  octavo::install_stop_handlers();
  return octavo::tool_main([&] { octavo::hub::run({argv + 1, argv + argc}); });
}
