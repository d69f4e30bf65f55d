#include "compare/hellaswag.h"

#include "base/error.h"
#include "base/json.h"
#include "base/library.h"
#include "base/log.h"
#include "base/progress.h"
#include "compare/runs.h"
#include "launch/restart.h"

namespace octavo::compare {
namespace {

constexpr size_t kMostBytes = size_t{256} << 20;

struct Answers {
  std::vector<bool> right;
  double percent() const {
    size_t count = 0;
    for (const bool one : right) count += one;
    return right.empty() ? 0
                         : 100.0 * static_cast<double>(count) / static_cast<double>(right.size());
  }
};

Answers read_answers(const fs::path& path) {
  const std::string text = read_file(path, kMostBytes);
  Answers answers;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    const Json row = parse_json(std::string_view(text).substr(at, end - at), path.string());
    answers.right.push_back(json_int(row, "pred_norm", path.string()) ==
                            json_int(row, "label", path.string()));
  }
  return answers;
}

// The checkpoint that the run ended with. Before runs had folders of their own, others saved beside
// it.
fs::path last_checkpoint(const RunFolder& run) {
  if (!run.settings)
    fail(ExitCode::kUsage, "compare", run.name(), ": wanted config.yaml to find its checkpoint");
  const fs::path root = launch::checkpoint_root(*run.settings);
  const std::string& name_of_run = run.settings->run_name;
  const fs::path folder =
      launch::checkpoints_in(root / name_of_run).empty() ? root : root / name_of_run;
  const int64_t last = run.steps.rbegin()->first;
  for (const auto& [step, written] : launch::checkpoints_of(root, name_of_run))
    if (step == last || step == last + 1) {
      char name[32];
      std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
      return folder / name;
    }
  fail(ExitCode::kUsage, "compare", run.name(), ": wanted the checkpoint of its last step, ", last,
       ", found none in ", folder.string());
}

struct Task {
  std::string file, hash;  // the questions, and the hash of their file
  int64_t limit = 0;
};

Answers answers_of(const RunFolder& run, const Task& task, SignalWatch& signals,
                   const std::function<void(const std::string&)>& tick) {
  const fs::path checkpoint = last_checkpoint(run);
  const std::string what =
      str(task.hash, " ", task.limit, " ", read_file(checkpoint / "manifest.json", kMostBytes));
  const std::string mark = hash_bytes(std::as_bytes(std::span(what))).substr(0, 12);
  const fs::path kept = run.folder / str("hellaswag-", mark, ".jsonl");
  std::error_code error;
  if (fs::exists(kept, error)) return read_answers(kept);
  const int code = run_child(
      {own_program().string(), "eval", (run.folder / "config.yaml").string(), "--eval_task",
       "hellaswag", "--eval_data", task.file, "--eval_limit", std::to_string(task.limit),
       "--checkpoint", checkpoint.string(), "--output", kept.string()},
      run.folder / "hellaswag.log", signals, tick);
  if (code != 0)
    fail(ExitCode::kGuard, "compare", run.name(), ": its model's scores are no numbers (",
         (run.folder / "hellaswag.log").string(), ")");
  return read_answers(kept);
}

TaskScores scores_of(const Answers& a, const Answers& b) {
  if (a.right.size() != b.right.size() || a.right.empty())
    fail(ExitCode::kDamaged, "compare", "wanted the same rows of HellaSwag for both runs, found ",
         a.right.size(), " and ", b.right.size());
  TaskScores scores{a.percent(), b.percent(), {}};
  for (size_t i = 0; i < a.right.size(); ++i)
    scores.differences.push_back(static_cast<double>(b.right[i]) - static_cast<double>(a.right[i]));
  return scores;
}

}  // namespace

void add_hellaswag(std::vector<Pair>& pairs, const fs::path& file, int64_t limit) {
  const Task task{.file = file.string(), .hash = hash_file(file), .limit = limit};
  SignalWatch signals;
  Progress progress("HellaSwag", 2 * static_cast<double>(pairs.size()), "models");
  double done = 0;
  const auto tick = [&](const std::string& line) { progress.set(done, line); };
  for (Pair& pair : pairs) {
    try {
      const Answers a = answers_of(*pair.a, task, signals, tick);
      ++done;
      const Answers b = answers_of(*pair.b, task, signals, tick);
      ++done;
      pair.task = scores_of(a, b);
    } catch (const Error& problem) {
      progress.clear();
      if (problem.code() == ExitCode::kStopped) throw;
      log_warn(problem.what());
      pair.no_task = problem.what();
    }
  }
  progress.clear();
}

}  // namespace octavo::compare
