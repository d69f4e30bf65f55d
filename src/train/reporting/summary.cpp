#include "train/reporting/summary.h"

#include <algorithm>
#include <optional>

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

std::string failure_words(const RunSummary& s) {
  return octavo::str(s.failures, s.failures == 1 ? " restart" : " restarts", " after a failure (",
                     join(s.failure_kinds, ", "), ")");
}

std::string trouble_words(const RunSummary& s) {
  std::string text = s.incidents > 0  ? octavo::str(s.incidents, " (incidents.jsonl)")
                     : s.failures > 0 ? failure_words(s)
                                      : "none";
  if (s.incidents > 0 && s.failures > 0) text += ", " + failure_words(s);
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

// What starts as many ranks again, before train and its arguments. Nothing where only the command
// that was typed says it: another launcher's hosts and GPUs, the number of nodes of an elastic run.
std::optional<std::string> launch_words(const launch::RankInfo& rank_info) {
  if (rank_info.elastic) return std::nullopt;
  if (rank_info.ranks == 1) return "octavo ";
  if (rank_info.nodes == 1) return octavo::str("octavo launch --nproc ", rank_info.ranks, " -- ");
  if (rank_info.launcher != "octavo") return std::nullopt;
  constexpr int kUsualPort = 29500;
  return octavo::str("octavo launch --nnodes ", rank_info.nodes, " --nproc ", rank_info.local_ranks,
                     " --node_rank ", rank_info.node, " --master_address ",
                     launch::shell_quoted(rank_info.master_address),
                     rank_info.master_port == kUsualPort
                         ? ""
                         : octavo::str(" --master_port ", rank_info.master_port),
                     " -- ");
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
  if (const auto words = launch_words(rank_info); words && stopped) {
    commands.push_back(octavo::str(*words, "train ", config, " --resume latest"));
    if (rank_info.nodes > 1)
      commands.push_back("  (on every other node the same, with its --node_rank)");
  }
  commands.push_back("octavo generate --checkpoint " + checkpoint + " --prompt 'The '");
  if (!stopped)
    commands.push_back(
        octavo::str("octavo checkpoints export ", checkpoint, " --output ",
                    launch::shell_quoted(free_folder(run_folder.filename().string() + "-export"))));
  return commands;
}

}  // namespace octavo::train
