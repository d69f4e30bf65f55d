// usage: checkpoint_faults_tool record DIRECTORY SCENARIO | check | damage DIRECTORY FLIPS CUTS |
//                               full DIRECTORY OFFSETS | retention DIRECTORY
#include "checkpoint_faults.h"

#include <cstdio>

#include "base/log.h"

namespace octavo::checkpoint::faults {

Json to_json(const PlannedSave& save) {
  return {{"step", save.step}, {"mark", save.mark}, {"best", save.best}, {"keep", save.keep}};
}

PlannedSave planned_save(const Json& json) {
  return {json.at("step").get<int64_t>(), json.at("mark").get<double>(),
          json.at("best").get<bool>(), json.at("keep").get<int>()};
}

std::string save_planned(const fs::path& directory, const PlannedSave& save, int ranks,
                         bool background, const std::string& token,
                         const std::function<void(std::string_view)>& on_stage) {
  const WholeModel whole(save.mark, save.rows);
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  const auto save_rank = [&](int rank) {
    std::string& error = errors[static_cast<size_t>(rank)];
    try {
      Saver saver(directory, {.part = {rank, ranks, ranks, token}, .timeout = save.timeout});
      State state = state_of_shard(whole, save.step, save.mark, rank, ranks);
      SaveOptions options{.best = save.best, .keep = save.keep};
      if (rank == 0) options.on_stage = on_stage;
      if (!background)
        saver.save(std::move(state), options);
      else
        saver.start(std::move(state), options);
      if (!saver.wait()) error = "the save in the background failed";
    } catch (const std::exception& found) {
      error = found.what();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(save_rank, rank);
  save_rank(0);
  for (auto& thread : threads) thread.join();
  for (const std::string& error : errors)
    if (!error.empty()) return error;
  return "";
}

namespace {

// "" or the first tensor that has other bits than the save of that mark had.
std::string other_bits(const State& state) {
  const WholeModel whole(state.extra.at("mark").get<double>(),
                         tensor(state, "model", "a.weight").size(0));
  for (const auto& [group, tensors] : whole.groups())
    for (const auto& [name, wanted] : tensors)
      if (!same_bits(tensor(state, group, name), wanted)) return name;
  return "";
}

}  // namespace

std::string problem_of(const fs::path& checkpoint, const std::vector<double>& marks) {
  for (const std::string& problem : verify(checkpoint)) return problem;
  const State state = load(checkpoint);
  if (const std::string found = other_bits(state); !found.empty())
    return str(checkpoint.filename().string(), ": ", found, " has other bits than were saved");
  const auto mark = state.extra.at("mark").get<double>();
  if (std::find(marks.begin(), marks.end(), mark) != marks.end()) return "";
  return str(checkpoint.filename().string(), " is save ", mark, ", which it should not be");
}

double resolved_mark(const fs::path& directory, const std::string& what) {
  const Loaded loaded = load_resolved(directory, what);
  const std::string found = other_bits(loaded.state);
  if (!found.empty()) fail(ExitCode::kDamaged, "faults", what, ": ", found, " has other bits");
  return loaded.state.extra.at("mark").get<double>();
}

std::vector<std::string> hidden_names(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with(".")) names.push_back(std::move(name));
  }
  return names;
}

namespace {

int run_word(const std::vector<std::string>& args) {
  const std::string word = args.empty() ? "" : args[0];
  if (word == "record" && args.size() == 3) return record_scenario(args[1], args[2]);
  if (word == "check" && args.size() == 1) return check_states();
  if (word == "damage" && args.size() == 4)
    return flip_and_cut(args[1], std::stoi(args[2]), std::stoi(args[3]));
  if (word == "full" && args.size() == 3) return fill_disk(args[1], std::stoi(args[2]));
  if (word == "retention" && args.size() == 2) return try_retention(args[1]);
  std::fprintf(stderr, "unknown arguments; see checkpoint_faults_tool.cpp\n");
  return 2;
}

}  // namespace
}  // namespace octavo::checkpoint::faults

int main(int argc, char** argv) {
  try {
    octavo::set_log_level(octavo::LogLevel::kError);
    return octavo::checkpoint::faults::run_word({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
