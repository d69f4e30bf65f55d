#pragma once
// Stages of a shared preparation: all items of one, done by whoever comes first.

#include <functional>
#include <string>

#include "data/work_folder.h"

namespace octavo::data {

// The name of an item of a stage.
std::string item_name(const std::string& stage, size_t number);

struct Stage {
  std::string name;   // of its items: NAME-000000, …
  std::string label;  // what is done, for people
  size_t items = 0;
  std::function<Json(size_t)> work;  // gives an item's result
  bool quiet = false;
};

// What this process did of a stage.
struct StageResult {
  size_t items = 0;
  size_t listings = 0;  // of the folder of all that is done, each of which takes as long as it is
};

// Fails when the process was asked to stop.
void check_stop(const WorkFolder& folder);

// Until every item is done, by this process or others.
StageResult do_stage(WorkFolder& folder, const Stage& stage);

}  // namespace octavo::data
