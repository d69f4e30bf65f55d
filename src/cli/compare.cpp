// octavo compare: two runs, or one configuration in two settings over several seeds, and a verdict.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "cli/run_folder.h"
#include "cli/verbs.h"
#include "compare/comparison.h"
#include "compare/hellaswag.h"
#include "compare/runs.h"
#include "data/splits.h"

namespace octavo::cli {
namespace {

using FolderPairs = std::vector<std::pair<fs::path, fs::path>>;

bool names_config(Args args) {
  return std::any_of(args.begin(), args.end(), [](const std::string& arg) {
    return !arg.starts_with("--") && (arg.ends_with(".yaml") || arg.ends_with(".yml"));
  });
}

// Where the runs are; those of a configuration are made first.
FolderPairs find_pairs(const config::Parsed& parsed, fs::path& folder) {
  const std::vector<std::string>& given = parsed.positionals;
  if (!parsed.config_file.empty()) {
    if (!given.empty())
      fail(ExitCode::kUsage, "cli", "compare: wanted CONFIG.yaml or run folders, found both");
    const compare::RunPlan plan = compare::plan_runs(parsed);
    compare::make_runs(plan);
    folder = plan.folder;
    FolderPairs pairs = compare::pairs_in(folder);
    if (2 * pairs.size() > plan.runs.size())
      log_warn(str(folder.string(), ": ", pairs.size() - plan.runs.size() / 2,
                   " more pairs from before are there and are judged too; another run_name keeps "
                   "them apart"));
    return pairs;
  }
  if (given.size() == 2) {
    folder = run_folder(given[1]);
    return {{run_folder(given[0]), folder}};
  }
  if (given.size() != 1)
    fail(ExitCode::kUsage, "cli",
         "compare: wanted RUN_A RUN_B, CONFIG.yaml, or a comparison's folder, found ",
         given.empty() ? "nothing" : str(given.size(), " folders"), "; runs: ", runs_here());
  folder = run_folder(given[0]);
  FolderPairs pairs = compare::pairs_in(folder);
  if (pairs.empty())
    fail(ExitCode::kUsage, "cli", "compare: wanted a comparison's folder with runs a-SEED and ",
         "b-SEED, found none in ", folder.string(), "; two runs are given as RUN_A RUN_B");
  return pairs;
}

}  // namespace

int compare(const Verb& verb, Args args) {
  config::Arguments arguments = verb.arguments;
  if (names_config(args)) arguments.reader |= config::reader::kTrain;
  const config::Parsed parsed = config::parse(args, arguments);
  const config::Settings& s = parsed.settings;
  if (!parsed.config_file.empty())
    for (const std::string& note : parsed.notes) log_info(note);
  fs::path folder, questions;  // asked for before the runs are made: those may take days
  if (!s.eval_data.empty()) questions = data::benchmark_file(s, "eval_data", s.eval_data);
  const compare::Bounds bounds{s.max_train_gap, s.max_val_gap, s.max_hellaswag_drop,
                               s.min_speedup,   s.tail_share,  s.max_memory_gap};
  std::vector<compare::Pair> pairs;
  for (const auto& [a, b] : find_pairs(parsed, folder))
    pairs.push_back(
        compare::compare_pair(compare::read_run(a), compare::read_run(b), s.tail_share));
  if (!questions.empty()) compare::add_hellaswag(pairs, questions, s.eval_limit);
  const compare::Comparison comparison = compare::judge(std::move(pairs), bounds);
  const fs::path page = s.output.empty() ? folder / "report.html" : fs::path(s.output);
  write_file_atomic(page, compare::page_of(comparison, bounds));
  const std::string json = compare::json_of(comparison, bounds)
                               .dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  const fs::path numbers = fs::path(page).replace_extension(".json");
  write_file_atomic(numbers, json + "\n");
  if (s.json)
    std::printf("%s\n", json.c_str());
  else
    std::printf("%sreport: %s, numbers: %s\n", compare::text_of(comparison).c_str(), page.c_str(),
                numbers.c_str());
  return compare::exit_code(comparison.verdict);
}

}  // namespace octavo::cli
