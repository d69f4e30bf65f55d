#include "train/reporting/summary.h"

#include <algorithm>

#include "base/error.h"
#include "base/printed.h"
#include "base/progress.h"
#include "base/text.h"
#include "launch/scripts.h"

namespace octavo::train {
namespace {

std::string speed_words(const RunSummary& s) {
  const double steps = s.step_seconds > 0 ? static_cast<double>(s.steps) / s.step_seconds : 0;
  const double tokens = s.step_seconds > 0 ? static_cast<double>(s.tokens) / s.step_seconds : 0;
  return octavo::str("in ", format_duration(s.seconds), " (", format_duration(s.step_seconds),
                     " of steps): ", printed("%.*f", tokens < 100 ? 1 : 0, tokens), " tokens/s, ",
                     printed("%.*f", steps < 100 ? 3 : 0, steps),
                     " steps/s, peak memory of tensors ", format_bytes(s.peak_bytes));
}

std::string loss_words(const RunSummary& s) {
  std::string text = printed("training %.6f", s.last_loss);
  const bool useless = std::ranges::find(s.open_flags, "worse_than_uniform") != s.open_flags.end();
  if (!s.best_val_loss)
    return text + (useless ? ", no validation better than guessing" : ", no validation");
  text += printed(", best validation %.6f", *s.best_val_loss);
  return text + (s.best_step ? octavo::str(" at step ", *s.best_step) : ", before the resume");
}

std::string trouble_words(const RunSummary& s) {
  std::string text = s.incidents == 0 ? "none" : octavo::str(s.incidents, " (incidents.jsonl)");
  if (s.skipped_steps > 0) text += octavo::str(", ", s.skipped_steps, " skipped steps");
  if (s.resumes > 0)
    text += octavo::str("; resumed ", s.resumes, s.resumes == 1 ? " time" : " times",
                        " (restarts.jsonl)");
  if (s.flags == 0) return text + "; no red flags";
  return text + octavo::str("; ", s.flags, s.flags == 1 ? " red flag" : " red flags",
                            s.open_flags.empty()
                                ? ", over"
                                : ", at the end still: " + join(s.open_flags, ", "));
}

// A folder that export does not refuse.
std::string free_folder(const std::string& name) {
  std::error_code error;
  if (!fs::exists(name, error)) return name;
  int number = 2;
  while (fs::exists(octavo::str(name, "-", number), error)) ++number;
  return octavo::str(name, "-", number);
}

}  // namespace

std::string summary_text(const RunSummary& s) {
  std::vector<std::vector<std::string>> rows;
  rows.push_back(
      {"precision", s.fp8_backend.empty()
                        ? s.precision
                        : s.precision +
                              printed(", %.1f%% of the FLOPs of GEMMs in FP8", 100 * s.fp8_share) +
                              ", backend " + s.fp8_backend});
  if (s.steps > 0) rows.push_back({"loss", loss_words(s)});
  rows.push_back({"incidents", trouble_words(s)});
  rows.push_back({"files", octavo::str("run in ", s.folder.string(),
                                       s.page.empty() ? "" : "; page: " + s.page.string())});
  if (!s.checkpoints.empty()) rows.push_back({"", "checkpoint in " + s.checkpoints.string()});
  for (size_t i = 0; i < s.next.size(); ++i) rows.push_back({i == 0 ? "next" : "", s.next[i]});
  std::string text = speed_words(s) + "\n" + table_text(rows);
  text.pop_back();  // the log ends the line
  return text;
}

std::string stop_words(const std::string& reason, int64_t step, bool launcher_continues) {
  if (launcher_continues)
    return octavo::str("stopped after step ", step, " for more ranks; octavo launch continues");
  return octavo::str("stopped by ", reason, " after step ", step,
                     "; continue with the same command and --resume latest");
}

std::vector<std::string> next_commands(const fs::path& run_folder, const fs::path& checkpoints,
                                       const launch::RankInfo& rank_info, bool stopped) {
  std::vector<std::string> commands;
  if (checkpoints.empty()) return commands;
  const std::string config = launch::shell_quoted((run_folder / "config.yaml").string());
  const std::string checkpoint = launch::shell_quoted(checkpoints.string());
  // Several nodes have a launcher that knows them: the same command again.
  if (stopped && rank_info.nodes == 1)
    commands.push_back(octavo::str(
        "octavo ",
        rank_info.ranks == 1 ? "" : octavo::str("launch --nproc ", rank_info.ranks, " -- "),
        "train ", config, " --resume latest"));
  commands.push_back("octavo generate --checkpoint " + checkpoint + " --prompt 'The '");
  if (!stopped)
    commands.push_back(
        octavo::str("octavo checkpoints export ", checkpoint, " --output ",
                    launch::shell_quoted(free_folder(run_folder.filename().string() + "-export"))));
  return commands;
}

}  // namespace octavo::train
