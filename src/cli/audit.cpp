// octavo audit: what really ran in a trace of anybody's trainer.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "audit/audit.h"
#include "base/error.h"
#include "cli/verbs.h"

namespace octavo::cli {
namespace {

std::string dumped(const nlohmann::json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

void print(const std::string& text, const nlohmann::json& json, const config::Settings& settings) {
  if (!settings.output.empty()) write_file_atomic(settings.output, dumped(json) + "\n");
  const std::string shown = settings.json ? dumped(json) + "\n" : text;
  std::fwrite(shown.data(), 1, shown.size(), stdout);
}

// A trace without GPU work, and not of octavo's own, is not enough for a verdict.
int exit_code(const audit::Audit& audit) {
  const bool is_empty = audit.total.work.calls == 0 && audit.ranges.empty();
  return static_cast<int>(is_empty ? ExitCode::kUndecided : ExitCode::kOk);
}

}  // namespace

int audit(const Verb& verb, Args args) {
  const GivenFlags given = take_own_flags(verb.own.flags, args);
  const config::Parsed parsed = config::parse(given.other_args, verb.arguments);
  const std::vector<fs::path> paths(parsed.positionals.begin(), parsed.positionals.end());
  if (paths.empty())
    fail(ExitCode::kUsage, "cli", "audit: wanted a trace, found none; name a PyTorch profiler ",
         "trace (.json, .json.gz), an Nsight Systems SQLite export or a file of octavo --trace, ",
         "one for each rank");
  if (!given.has("compare")) {
    const audit::Audit found = audit::audit_traces(paths);
    print(audit::text_of(found), audit::json_of(found), parsed.settings);
    return exit_code(found);
  }
  if (paths.size() != 2)
    fail(ExitCode::kUsage, "cli", "audit --compare: wanted two traces, A and B, found ",
         paths.size());
  const audit::Audit a = audit::audit_traces({paths[0]}), b = audit::audit_traces({paths[1]});
  print(audit::comparison_text(a, b), audit::comparison_json(a, b), parsed.settings);
  return std::max(exit_code(a), exit_code(b));
}

}  // namespace octavo::cli
