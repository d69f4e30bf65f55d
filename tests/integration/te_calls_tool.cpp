// The C++ side of tests/integration/te_calls.py.
// usage: te_calls_tool accept CAPABILITY: in a process on the fake CUDA device of that capability
//        te_calls_tool steps all|usual: with OCTAVO_TE_LIBRARY naming the stand-in; every format of
//        a recipe and every way to train, or the usual format and one way for each model
// The last line is cases=N failed=0. Or te_calls_tool library: the version found, or why there is
// none.

#include <string_view>

#include "engine/te/te.h"
#include "te_cases.h"

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  try {
    if (what == "accept" && argc == 3) return octavo::check_acceptance(std::stoi(argv[2]));
    if (what == "steps" && argc == 3)
      return octavo::check_steps(std::string_view(argv[2]) == "all");
    if (what == "library" && argc == 2) {
      const auto info = octavo::engine::te::library_info();
      std::printf("%s\n", info.problem.empty() ? info.version.c_str() : info.problem.c_str());
      return 0;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "te_calls_tool: %s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "usage: te_calls_tool accept CAPABILITY | steps all|usual | library\n");
  return 2;
}
