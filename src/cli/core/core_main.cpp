// The verbs that need libtorch, behind the one symbol that the executable looks up.

#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/core/core_verbs.h"

extern "C" __attribute__((visibility("default"))) int octavo_core_main(const char* verb, int argc,
                                                                       const char* const* argv) {
  using namespace octavo;
  const std::vector<std::string> args(argv, argv + argc);
  const std::string_view name = verb;
  if (name == "train") return cli::train(args);
  if (name == "generate") return cli::generate(args);
  if (name == "eval") return cli::eval(args);
  if (name == "checkpoints") return cli::checkpoints(args);
  if (name == "verify") return cli::verify(args);
  if (name == "diagnose") return cli::diagnose(args);
  if (name == "bench") return cli::bench(args);
  if (name == "plan") return cli::dry_run(args);
  fail(ExitCode::kUsage, "cli", "this build's core library has no verb '", name, "'");
}
