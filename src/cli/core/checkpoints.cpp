#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/core/core_verbs.h"
#include "config/parse.h"
#include "export/export.h"
#include "train/device.h"
#include "train/state/folder_check.h"
#include "train/state/persist.h"
#include "train/state/switched_precision.h"

namespace octavo::cli {
namespace {

Json to_json(const checkpoint::Summary& c) {
  return {{"path", c.path.string()},
          {"run", c.run},
          {"step", c.step},
          {"tokens", c.tokens},
          {"bytes", c.bytes},
          {"precision", c.precision},
          {"recipe", c.recipe},
          {"created", c.created},
          {"val_loss", c.val_loss ? Json(*c.val_loss) : Json()},
          {"latest", c.is_latest},
          {"best", c.is_best},
          {"permanent", c.is_permanent}};
}

// What weights, gradients and optimizer take; activations come on top.
void print_memory(double parameters) {
  const auto bytes = [&](double each) { return format_bytes(parameters * each); };
  std::printf(
      "  %s parameters: %s to run in BF16. To train all of them, beside activations: %s; with "
      "master_dtype, moment_dtype and gradient_dtype bf16 %s; with moment_dtype fp8 %s. LoRA: %s "
      "and 18 bytes for each parameter of the adapters, with lora_base fp8 about half.\n",
      format_count(parameters).c_str(), bytes(2).c_str(), bytes(18).c_str(), bytes(8).c_str(),
      bytes(6.0625).c_str(), bytes(2).c_str());
}

int verify_model_folder(const std::string& folder) {
  const train::FolderCheck check = train::check_folder(folder);
  const bool whole = check.problems.empty();
  std::printf("%s: %s\n", folder.c_str(), whole ? "whole" : "DAMAGED");
  for (const auto& problem : check.problems) std::printf("  %s\n", problem.c_str());
  if (whole)
    std::printf(
        "  %zu weights (%zu in FP8%s%s) in %zu file%s, %s: index, names and shapes are those "
        "of config.json. Hugging Face folders have no hashes: the numbers were not "
        "checked.\n",
        check.tensors, check.in_eight_bits, check.method.empty() ? "" : ", ", check.method.c_str(),
        check.shards, check.shards == 1 ? "" : "s",
        format_bytes(static_cast<double>(check.bytes)).c_str());
  if (whole) print_memory(static_cast<double>(check.parameters));
  return static_cast<int>(whole ? ExitCode::kOk : ExitCode::kDamaged);
}

int verify_paths(const std::vector<fs::path>& paths) {
  size_t damaged = 0;
  for (const auto& path : paths) {
    const auto problems = checkpoint::verify(path);
    std::printf("%s: %s\n", path.string().c_str(), problems.empty() ? "whole" : "DAMAGED");
    for (const auto& problem : problems) std::printf("  %s\n", problem.c_str());
    damaged += problems.empty() ? 0 : 1;
  }
  return static_cast<int>(damaged == 0 ? ExitCode::kOk : ExitCode::kDamaged);
}

int verify(const std::string& folder) {
  if (fs::exists(fs::path(folder) / "config.json")) return verify_model_folder(folder);
  std::vector<fs::path> paths;
  for (const fs::path& run : checkpoint::run_folders(folder))
    for (fs::path& path : checkpoint::step_paths(run)) paths.push_back(std::move(path));
  if (fs::exists(fs::path(folder) / "manifest.json"))
    paths = {folder};  // one checkpoint, not a folder of them
  if (paths.empty())
    fail(ExitCode::kDamaged, "cli", "wanted checkpoints in ", folder,
         ", found none; name the folder: octavo checkpoints verify FOLDER");
  return verify_paths(paths);
}

// Where the run of that name has its checkpoints, or would have them.
fs::path root_of_run(config::Settings settings, const std::string& named) {
  settings.checkpoint = named;
  return train::root_of_checkpoint(settings);
}

// A folder, or that of a run by its name; empty when there is neither.
fs::path folder_of(const config::Settings& settings, const std::string& named) {
  std::error_code none;
  if (fs::is_directory(named, none)) return named;
  const fs::path in_root = root_of_run(settings, named) / named;
  return fs::is_directory(in_root, none) ? in_root : fs::path();
}

[[noreturn]] void fail_unknown(const config::Settings& settings, const std::string& named) {
  constexpr size_t kShown = 8;
  const fs::path root = root_of_run(settings, named);
  std::vector<std::string> runs;
  for (const fs::path& folder : checkpoint::run_folders(root))
    if (folder != root) runs.push_back(folder.filename().string());
  if (runs.size() > kShown) {
    runs.resize(kShown);
    runs.emplace_back("…");
  }
  fail(ExitCode::kUsage, "cli", "wanted a folder of checkpoints or a run in ", root.string(),
       ", found neither for '", printable(named), "'; name one of ",
       runs.empty() ? "your folders" : join(runs, ", "));
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

int export_checkpoint(const config::Settings& settings) {
  train::prepare_process(settings);
  const exporter::ExportReport made = exporter::export_model(settings);
  std::printf("copied: %s; not there: %s\n", joined(made.copied).c_str(),
              joined(made.missing).c_str());
  if (!made.chat_template.empty())
    std::printf("written for chat_template %s, with which it was trained: %s\n",
                made.chat_template.c_str(), joined(made.written).c_str());
  std::printf(
      "%s: %s, %zu files, %s; loss of %s: source %.5f, export %.5f, difference %.3f %% (at "
      "most %.1f %%)\n",
      settings.output.c_str(), std::string(name_of(settings.export_format)).c_str(), made.files,
      format_bytes(static_cast<double>(made.bytes)).c_str(), made.text.c_str(), made.source_loss,
      made.export_loss, 100 * made.difference, 100 * made.bound);
  return static_cast<int>(ExitCode::kOk);
}

// The run's name, or that of its folder.
std::string run_of(const checkpoint::Summary& c) {
  return c.run.empty() ? c.path.parent_path().filename().string() : c.run;
}

// Run by run; the one that saved last comes last. `permanent_every` is of `run`, if there is one.
std::vector<checkpoint::Summary> all_checkpoints(const fs::path& folder, const std::string& run,
                                                 int64_t permanent_every = 0) {
  std::vector<std::vector<checkpoint::Summary>> runs;
  for (const fs::path& of_run : checkpoint::run_folders(folder)) {
    runs.push_back(checkpoint::list(of_run, run.empty() ? 0 : permanent_every));
    if (!run.empty()) std::erase_if(runs.back(), [&](const auto& c) { return run_of(c) != run; });
  }
  const auto last = [](const auto& summaries) {
    std::string created;
    for (const auto& c : summaries) created = std::max(created, c.created);
    return created;
  };
  std::ranges::stable_sort(runs, {}, last);
  std::vector<checkpoint::Summary> all;
  for (auto& summaries : runs) std::ranges::move(summaries, std::back_inserter(all));
  return all;
}

// Those that `list` shows of the run, and beside them those that nobody can be told to have saved:
// their manifest cannot be read.
std::vector<fs::path> paths_of_run(const fs::path& root, const std::string& run) {
  std::vector<fs::path> paths;
  for (const fs::path& folder : checkpoint::run_folders(root)) {
    const auto readable = checkpoint::list(folder);
    const auto is_own = [&](const auto& c) { return run_of(c) == run; };
    if (std::ranges::none_of(readable, is_own)) continue;
    for (fs::path& path : checkpoint::step_paths(folder)) {
      const auto found = std::ranges::find(readable, path, &checkpoint::Summary::path);
      if (found == readable.end() || is_own(*found)) paths.push_back(std::move(path));
    }
  }
  return paths;
}

void print_rows(const std::vector<checkpoint::Summary>& all) {
  size_t width = std::strlen("run");
  for (const auto& c : all) width = std::max(width, run_of(c).size());
  const int run_width = static_cast<int>(width);
  std::printf("%-*s %-16s %10s %10s %9s %10s  %-24s %s\n", run_width, "run", "checkpoint", "step",
              "tokens", "size", "val loss", "created", "precision");
  for (const auto& c : all) {
    char loss[32] = "-";
    if (c.val_loss) std::snprintf(loss, sizeof loss, "%.4f", *c.val_loss);
    std::printf("%-*s %-16s %10lld %10s %9s %10s  %-24s %s%s%s%s%s\n", run_width, run_of(c).c_str(),
                c.path.filename().c_str(), static_cast<long long>(c.step),
                format_count(static_cast<double>(c.tokens)).c_str(),
                format_bytes(static_cast<double>(c.bytes)).c_str(), loss, c.created.c_str(),
                c.precision.c_str(), c.recipe.empty() ? "" : (" " + c.recipe).c_str(),
                c.is_latest ? "  latest" : "", c.is_best ? "  best" : "",
                c.is_permanent ? "  permanent" : "");
  }
}

}  // namespace

int list_checkpoints(const std::string& folder, bool json, const std::string& run,
                     int64_t permanent_every) {
  const auto all = all_checkpoints(folder, run, permanent_every);
  if (json) {
    Json rows = Json::array();
    for (const auto& c : all) rows.push_back(to_json(c));
    std::printf("%s\n", rows.dump(2).c_str());
    return static_cast<int>(ExitCode::kOk);
  }
  if (all.empty())
    std::printf("no checkpoints%s in %s\n", run.empty() ? "" : (" of run " + run).c_str(),
                folder.c_str());
  else
    print_rows(all);
  if (folder == "checkpoints" && !checkpoint::run_folders("checkpoints_fp8").empty())
    std::printf("those of FP8 runs: octavo checkpoints list checkpoints_fp8\n");
  return static_cast<int>(ExitCode::kOk);
}

namespace {

// Without a name those of the run whose file was given, or else of all runs.
int list_named(const config::Settings& settings, const std::string& named) {
  const std::string& run = settings.run_name;
  if (named.empty() && !run.empty())
    return list_checkpoints(root_of_run(settings, run).string(), settings.json, run,
                            settings.permanent_checkpoint_freq);
  if (named.empty()) return list_checkpoints(train::checkpoint_dir(settings), settings.json, "");
  if (const fs::path folder = folder_of(settings, named); !folder.empty())
    return list_checkpoints(folder.string(), settings.json, "");
  // Of before runs had folders of their own.
  const fs::path root = root_of_run(settings, named);
  if (all_checkpoints(root, named).empty()) fail_unknown(settings, named);
  return list_checkpoints(root.string(), settings.json, named);
}

// Its folder, or where it has none of its own what `list` shows of it.
int verify_run(const config::Settings& settings, const std::string& run) {
  const fs::path root = root_of_run(settings, run);
  std::error_code none;
  if (fs::is_directory(root / run, none)) return verify((root / run).string());
  const std::vector<fs::path> paths = paths_of_run(root, run);
  if (paths.empty()) fail_unknown(settings, run);
  return verify_paths(paths);
}

int verify_named(const config::Settings& settings, const std::string& named) {
  const std::string& run = settings.run_name;
  if (named.empty() && run.empty()) return verify(train::root_of_checkpoint(settings));
  if (named.empty()) return verify_run(settings, run);
  if (const fs::path folder = folder_of(settings, named); !folder.empty())
    return verify(folder.string());
  return verify_run(settings, named);
}

}  // namespace

int checkpoints(CoreArgs args) {
  const config::Parsed parsed = config::parse(args, config::kCheckpointsArguments);
  const auto& words = parsed.positionals;
  const std::string named = words.size() > 1 ? words[1] : "";
  if (!words.empty() && words[0] == "list") return list_named(parsed.settings, named);
  if (!words.empty() && words[0] == "verify") return verify_named(parsed.settings, named);
  if (!words.empty() && words[0] == "export") {
    config::Settings settings = parsed.settings;
    if (words.size() > 1) settings.checkpoint = words[1];
    settings.checkpoint_dir = train::root_of_checkpoint(settings);
    return export_checkpoint(settings);
  }
  fail(ExitCode::kUsage, "cli", "wanted checkpoints list, verify or export, found ",
       words.empty() ? "nothing" : "'" + words[0] + "'", "; see octavo checkpoints --help");
}

}  // namespace octavo::cli
