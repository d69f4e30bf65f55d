// octavo compare: two runs, or one configuration in two settings over several seeds, and a verdict.
// Runs may be logs of other trainers.

#include <algorithm>
#include <charconv>
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
#include "foreign_logs/log.h"

namespace octavo::cli {
namespace {

// What was said about the runs beside the keys.
struct CompareFlags {
  std::vector<std::string> against;  // the second side, a run for each of the first
  foreign_logs::Options logs;
  bool same_batches = false;
  bool about_logs = false;  // one of the flags about other trainers' logs was given
};

int64_t tokens_of(const std::string& text) {
  int64_t tokens = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, tokens);
  if (error != std::errc() || stop != end || tokens < 1 || tokens > int64_t{1} << 40)
    fail(ExitCode::kUsage, "cli", "--step_tokens: wanted a number of tokens, found '",
         text.substr(0, 40), "'");
  return tokens;
}

CompareFlags compare_flags(const GivenFlags& given) {
  CompareFlags flags;
  if (given.has("against")) flags.against = given.values.at("against");
  if (const auto name = given.value("loss_name")) flags.logs.loss_name = *name;
  if (const auto name = given.value("val_loss_name")) flags.logs.val_loss_name = *name;
  if (const auto tokens = given.value("step_tokens")) flags.logs.step_tokens = tokens_of(*tokens);
  flags.same_batches = given.has("same_batches");
  flags.about_logs = given.values.size() > (given.has("against") ? 1U : 0U);
  return flags;
}

using FolderPairs = std::vector<std::pair<fs::path, fs::path>>;

bool names_config(Args args) {
  return std::any_of(args.begin(), args.end(), [](const std::string& arg) {
    return !arg.starts_with("--") && (arg.ends_with(".yaml") || arg.ends_with(".yml"));
  });
}

// The runs of a configuration are made first.
FolderPairs pairs_of_config(const config::Parsed& parsed, fs::path& folder) {
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

FolderPairs pairs_of_sides(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  if (a.size() != b.size())
    fail(ExitCode::kUsage, "cli", "compare: wanted as many runs before --against as behind it, ",
         "found ", a.size(), " and ", b.size(), "; a pair is one seed of both");
  FolderPairs pairs;
  for (size_t i = 0; i < a.size(); ++i) pairs.emplace_back(run_folder(a[i]), run_folder(b[i]));
  return pairs;
}

// Where the runs are.
FolderPairs find_pairs(const config::Parsed& parsed, const CompareFlags& flags, fs::path& folder) {
  const std::vector<std::string>& given = parsed.positionals;
  if (!parsed.config_file.empty()) {
    if (!given.empty() || !flags.against.empty())
      fail(ExitCode::kUsage, "cli", "compare: wanted CONFIG.yaml or run folders, found both");
    return pairs_of_config(parsed, folder);
  }
  if (!flags.against.empty() || given.size() == 2) {
    const bool two = flags.against.empty();
    FolderPairs pairs =
        two ? pairs_of_sides({given[0]}, {given[1]}) : pairs_of_sides(given, flags.against);
    folder = pairs.back().second;
    return pairs;
  }
  if (given.size() != 1)
    fail(ExitCode::kUsage, "cli",
         "compare: wanted RUN_A RUN_B, CONFIG.yaml, or a comparison's folder, found ",
         given.empty() ? "nothing" : str(given.size(), " folders"),
         given.size() > 2 ? "; several runs a side are given as A1 A2 --against B1 B2" : "",
         "; runs: ", runs_here());
  folder = run_folder(given[0]);
  FolderPairs pairs = compare::pairs_in(folder);
  if (pairs.empty())
    fail(ExitCode::kUsage, "cli", "compare: wanted a comparison's folder with runs a-SEED and ",
         "b-SEED, found none in ", folder.string(), "; two runs are given as RUN_A RUN_B");
  return pairs;
}

compare::RunFolder read_side(const fs::path& path, const CompareFlags& flags) {
  if (!compare::is_run_folder(path))
    return compare::read_foreign_run(path, flags.logs, flags.same_batches);
  if (flags.about_logs)
    log_warn(str(path.string(), " is a run of octavo: what was said about logs is not for it"));
  return compare::read_run(path);
}

std::vector<compare::Pair> compare_all(const FolderPairs& paths, const CompareFlags& flags,
                                       double tail_share) {
  std::vector<compare::Pair> pairs;
  for (const auto& [a, b] : paths)
    pairs.push_back(compare::compare_pair(read_side(a, flags), read_side(b, flags), tail_share));
  return pairs;
}

// The numbers go beside the page, under its name and .json.
void check_output(const fs::path& page) {
  if (page.extension() == ".json")
    fail(ExitCode::kUsage, "cli", "compare --output: wanted the page's name, found ", page.string(),
         ", where its numbers go; write --output ",
         fs::path(page).replace_extension(".html").string());
}

bool any_foreign(const std::vector<compare::Pair>& pairs) {
  return std::ranges::any_of(pairs, [](const compare::Pair& pair) {
    return pair.a->is_foreign() || pair.b->is_foreign();
  });
}

}  // namespace

int compare(const Verb& verb, Args args) {
  const GivenFlags given = take_own_flags(verb.own.flags, args);
  const CompareFlags flags = compare_flags(given);
  config::Arguments arguments = verb.arguments;
  if (names_config(given.other_args)) arguments.reader |= config::reader::kTrain;
  const config::Parsed parsed = config::parse(given.other_args, arguments);
  const config::Settings& s = parsed.settings;
  check_output(s.output);
  if (!parsed.config_file.empty())
    for (const std::string& note : parsed.notes) log_info(note);
  fs::path folder, questions;  // asked for before the runs are made: those may take days
  if (!s.eval_data.empty()) questions = data::benchmark_file(s, "eval_data", s.eval_data);
  const compare::Bounds bounds{s.max_train_gap, s.max_val_gap, s.max_hellaswag_drop,
                               s.min_speedup,   s.tail_share,  s.max_memory_gap};
  std::vector<compare::Pair> pairs =
      compare_all(find_pairs(parsed, flags, folder), flags, s.tail_share);
  if (any_foreign(pairs)) {
    if (!questions.empty())
      fail(ExitCode::kUsage, "cli",
           "--eval_data: wanted runs of octavo, whose models can be asked,",
           " found logs of other trainers; leave it out");
    folder.clear();  // the folders of other trainers are left as they are
  }
  if (!questions.empty()) compare::add_hellaswag(pairs, questions, s.eval_limit);
  const compare::Comparison comparison = compare::judge(std::move(pairs), bounds);
  const fs::path page = !s.output.empty() ? fs::path(s.output)
                        : folder.empty()  ? fs::path("compare.html")
                                          : folder / "report.html";
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
