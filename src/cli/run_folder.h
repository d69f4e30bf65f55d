#pragma once
// A run of `octavo report` and `octavo compare`, by its folder or by its name.

#include <algorithm>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace octavo::cli {

// "quickstart" is runs/quickstart, unless something here has that name.
inline fs::path run_folder(const std::string& named) {
  std::error_code none;
  const fs::path in_runs = fs::path("runs") / named;
  return !fs::exists(named, none) && fs::is_directory(in_runs, none) ? in_runs : fs::path(named);
}

// "runs/a, runs/b" for messages: some of those that are here, or how such a folder looks.
inline std::string runs_here() {
  constexpr size_t kShown = 8;
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at("runs", error), end; !error && at != end; at.increment(error))
    if (std::error_code none; fs::is_regular_file(at->path() / "metrics.jsonl", none))
      found.push_back(at->path().string());
  std::sort(found.begin(), found.end());
  if (found.size() > kShown) found.resize(kShown);
  return found.empty() ? "such as runs/quickstart" : join(found, ", ");
}

}  // namespace octavo::cli
