#include "checkpoint/checkpoint.h"

#include <cstdio>

#include "base/error.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/core/core_verbs.h"
#include "config/parse.h"
#include "train/persist.h"

namespace octavo::cli {
namespace {

Json to_json(const checkpoint::Summary& c) {
  return {{"path", c.path.string()},  {"step", c.step},
          {"tokens", c.tokens},       {"bytes", c.bytes},
          {"precision", c.precision}, {"recipe", c.recipe},
          {"created", c.created},     {"val_loss", c.val_loss ? Json(*c.val_loss) : Json()},
          {"latest", c.is_latest},    {"best", c.is_best}};
}

int verify(const std::string& folder) {
  std::vector<fs::path> paths = checkpoint::step_paths(folder);
  if (fs::exists(fs::path(folder) / "manifest.json"))
    paths = {folder};  // one checkpoint, not a folder of them
  if (paths.empty())
    fail(ExitCode::kDamaged, "cli", "no checkpoint in ", folder,
         "; say the folder with --checkpoint_dir");
  size_t damaged = 0;
  for (const auto& path : paths) {
    const auto problems = checkpoint::verify(path);
    std::printf("%s: %s\n", path.string().c_str(), problems.empty() ? "whole" : "DAMAGED");
    for (const auto& problem : problems) std::printf("  %s\n", problem.c_str());
    damaged += problems.empty() ? 0 : 1;
  }
  return static_cast<int>(damaged == 0 ? ExitCode::kOk : ExitCode::kDamaged);
}

}  // namespace

int list_checkpoints(const std::string& folder, bool json) {
  const auto all = checkpoint::list(folder);
  if (json) {
    Json rows = Json::array();
    for (const auto& c : all) rows.push_back(to_json(c));
    std::printf("%s\n", rows.dump(2).c_str());
    return static_cast<int>(ExitCode::kOk);
  }
  if (all.empty()) {
    std::printf("no checkpoints in %s\n", folder.c_str());
    if (folder != "checkpoints_fp8" && !checkpoint::step_paths("checkpoints_fp8").empty())
      std::printf("there are some of FP8 runs: --checkpoint_dir checkpoints_fp8\n");
    return static_cast<int>(ExitCode::kOk);
  }
  std::printf("%-24s %10s %10s %9s %10s  %-20s %s\n", "checkpoint", "step", "tokens", "size",
              "val loss", "created", "precision");
  for (const auto& c : all) {
    char loss[32] = "-";
    if (c.val_loss) std::snprintf(loss, sizeof loss, "%.4f", *c.val_loss);
    std::printf("%-24s %10lld %10s %9s %10s  %-20s %s%s%s%s\n", c.path.filename().c_str(),
                static_cast<long long>(c.step), format_count(static_cast<double>(c.tokens)).c_str(),
                format_bytes(static_cast<double>(c.bytes)).c_str(), loss, c.created.c_str(),
                c.precision.c_str(), c.recipe.empty() ? "" : (" " + c.recipe).c_str(),
                c.is_latest ? "  latest" : "", c.is_best ? "  best" : "");
  }
  return static_cast<int>(ExitCode::kOk);
}

int checkpoints(CoreArgs args) {
  const config::Parsed parsed = config::parse(args, config::kCheckpointsArguments);
  const auto& words = parsed.positionals;
  const std::string folder = words.size() > 1 ? words[1] : train::checkpoint_dir(parsed.settings);
  if (!words.empty() && words[0] == "list") return list_checkpoints(folder, parsed.settings.json);
  if (!words.empty() && words[0] == "verify") return verify(folder);
  fail(ExitCode::kUsage, "cli", "wanted checkpoints list or checkpoints verify, found ",
       words.empty() ? "nothing" : "'" + words[0] + "'");
}

}  // namespace octavo::cli
