#pragma once
// The parts of checkpoint_faults_tool, which tests/faults/checkpoints.py drives: saves whose
// tensors carry a mark, and ways to harm them.

#include <string>
#include <vector>

#include "checkpoint/ranks.h"

namespace octavo::checkpoint::faults {

// One save of a scenario. `mark` makes its tensors other ones than those of every other save.
struct PlannedSave {
  int64_t step = 0;
  double mark = 0;
  bool best = false;
  int keep = 0;
  int64_t rows = 37;    // of its larger tensors
  double timeout = 20;  // seconds that ranks wait for each other
};
Json to_json(const PlannedSave& save);
PlannedSave planned_save(const Json& json);

// Alone (1 rank) or by as many ranks as threads, in the foreground or started and waited for. The
// error of the first rank that had one, else "".
std::string save_planned(const fs::path& directory, const PlannedSave& save, int ranks,
                         bool background, const std::string& token,
                         const std::function<void(std::string_view)>& on_stage = {});

// "" when the checkpoint is whole and has the bits of a save with one of these marks.
std::string problem_of(const fs::path& checkpoint, const std::vector<double>& marks);
// The mark of what `what` resolves to; its bits are compared. Throws what resolving throws.
double resolved_mark(const fs::path& directory, const std::string& what);
// Names that begin with a dot.
std::vector<std::string> hidden_names(const fs::path& directory);

// The words of the command line; each prints JSON lines and returns an exit code.
int record_scenario(const fs::path& directory, const std::string& name);
int check_states();  // one JSON line each from stdin
int flip_and_cut(const fs::path& directory, int flips, int cuts);
int fill_disk(const fs::path& directory, int offsets);  // a small file system of its own
int try_retention(const fs::path& directory);

}  // namespace octavo::checkpoint::faults
