// Crashes: the saves that write_recorder.cpp writes down, and what must hold of every state that
// replay.py makes of them.
#include <dlfcn.h>

#include <iostream>

#include "base/log.h"
#include "checkpoint_faults.h"

namespace octavo::checkpoint::faults {
namespace {

// With an older one removed, a checkpoint of the same step replaced, and links that move.
const std::vector<PlannedSave> kSaves = {{1, 10, false, 0}, {2, 20, true, 0},  {3, 30, false, 2},
                                         {3, 31, true, 2},  {4, 40, false, 1}, {3, 32, false, 0}};

// Files of more than one block, which a thread of its own writes.
const std::vector<PlannedSave> kLargeSaves = {{1, 10, false, 0, 20'000}, {2, 20, true, 1, 20'000}};

void mark(const Json& event) {
  using MarkFunction = void (*)(const char*);
  static const auto said =
      reinterpret_cast<MarkFunction>(::dlsym(RTLD_DEFAULT, "octavo_record_mark"));
  if (said == nullptr) fail(ExitCode::kEnvironment, "faults", "the recorder is not loaded");
  said(event.dump().c_str());
}

// What is there after some saves.
struct Picture {
  std::vector<std::pair<int64_t, double>> saved;  // step and mark, the last one last
  int64_t latest = -1, best = -1;

  double mark_of(int64_t step) const {
    for (const auto& [other, found] : saved)
      if (other == step) return found;
    return -1;
  }
  bool has(int64_t step) const { return mark_of(step) >= 0; }
  void add(const PlannedSave& save) {
    std::erase_if(saved, [&](const auto& item) { return item.first == save.step; });
    saved.emplace_back(save.step, save.mark);
    latest = save.step;
    if (save.best) best = save.step;
    if (save.keep == 0) return;
    for (size_t i = saved.size(), kept = 0; i-- > 0;) {
      if (kept++ < static_cast<size_t>(save.keep) || saved[i].first == best) continue;
      saved.erase(saved.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
};

std::string folder_problem(const fs::path& directory, const Picture& before, const Picture& after) {
  for (const fs::path& path : step_paths(directory)) {
    const int64_t step = open(path).step;
    const std::string problem = problem_of(path, {before.mark_of(step), after.mark_of(step)});
    if (!problem.empty()) return problem;
  }
  return "";
}

std::string missing_problem(const fs::path& directory, const Picture& before, const Picture& after,
                            double latest) {
  std::set<int64_t> found;
  for (const Summary& summary : list(directory)) found.insert(summary.step);
  for (const auto& [step, mark_of_it] : before.saved) {
    if (found.contains(step)) continue;
    if (after.has(step)) return str("step ", step, " is gone");
    if (latest != after.mark_of(after.latest))
      return str("step ", step, " was removed before its successor could be found");
  }
  return "";
}

std::string next_save_problem(const fs::path& directory, int number) {
  const size_t before = step_paths(directory).size();
  const PlannedSave next{1000, 77, false, 0};
  const std::string error =
      save_planned(directory, next, number % 3 == 0 ? 2 : 1, number % 2 == 0, str("next", number));
  if (!error.empty()) return "the next save failed: " + error;
  if (resolved_mark(directory, "latest") != next.mark) return "the next save is not the latest";
  for (const std::string& name : hidden_names(directory)) return name + " was not cleaned up";
  if (step_paths(directory).size() != before + 1) return "the next save removed an older one";
  for (const fs::path& path : step_paths(directory))
    if (!verify(path).empty()) return path.filename().string() + " is damaged after the next save";
  return "";
}

std::string state_problem(const fs::path& directory, const Picture& before, const Picture& after,
                          bool exchanges, int number) {
  if (!fs::exists(directory)) return before.saved.empty() ? "" : "the folder is gone";
  const auto is_one_of = [&](double found, int64_t Picture::*which) {
    return found == before.mark_of(before.*which) || found == after.mark_of(after.*which);
  };
  if (std::string problem = folder_problem(directory, before, after); !problem.empty())
    return problem;
  const int64_t warnings = warning_count();
  double latest = -1;
  if (!step_paths(directory).empty()) latest = resolved_mark(directory, "latest");
  if (latest < 0 && !before.saved.empty()) return "no checkpoint is left";
  if (latest >= 0 && !is_one_of(latest, &Picture::latest)) return str("latest is save ", latest);
  if (before.best >= 0 && !is_one_of(resolved_mark(directory, "best"), &Picture::best))
    return "best_model is another save's";
  if (exchanges && !before.saved.empty() && warning_count() != warnings)
    return "latest or best_model needed a fallback";
  if (std::string problem = missing_problem(directory, before, after, latest); !problem.empty())
    return problem;
  return next_save_problem(directory, number);
}

}  // namespace

int record_scenario(const fs::path& directory, const std::string& name) {
  const int ranks = name.starts_with("ranks") ? std::stoi(name.substr(5)) : 1;
  int number = 0;
  for (const PlannedSave& save : name == "large" ? kLargeSaves : kSaves) {
    mark({{"event", "begin"}, {"save", to_json(save)}});
    const std::string error =
        save_planned(directory, save, ranks, name == "background", str("run", number++));
    if (!error.empty()) fail(ExitCode::kEnvironment, "faults", name, ": ", error);
    mark({{"event", "saved"}});
  }
  return 0;
}

// In: {"folder": …, "done": [saves that were reported as done], "running": save or null,
// "exchanges": whether the file system can exchange two names; else a fallback may be needed}.
int check_states() {
  int number = 0;
  for (std::string line; std::getline(std::cin, line); ++number) {
    const Json state = parse_json(line, "a state");
    Picture before, after;
    for (const Json& save : state.at("done")) before.add(planned_save(save));
    after = before;
    if (!state.at("running").is_null()) after.add(planned_save(state.at("running")));
    std::string problem;
    try {
      problem = state_problem(state.at("folder").get<std::string>(), before, after,
                              state.at("exchanges").get<bool>(), number);
    } catch (const std::exception& error) {
      problem = error.what();
    }
    std::cout << (problem.empty() ? "ok" : problem) << std::endl;
  }
  return 0;
}

}  // namespace octavo::checkpoint::faults
