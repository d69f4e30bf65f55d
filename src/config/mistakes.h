#pragma once
// All mistakes of a command line and its file, to be said together.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace octavo::config {

class Mistakes {
 public:
  // Runs one step of reading; a mistake of the user in it becomes a line. False when there was one.
  template <typename Step>
  bool collect(Step&& step) {
    try {
      std::forward<Step>(step)();
      return true;
    } catch (const Error& error) {
      if (error.code() != ExitCode::kUsage) throw;
      add(without_module(error.what()));
      return false;
    }
  }
  void add(std::string line) { lines_.push_back(std::move(line)); }

  // A key whose value is not known: what rules say about it would follow from the mistake alone.
  void leave_open(const std::string& key) { open_.insert(key); }
  const std::set<std::string>& open_keys() const { return open_; }

  // One error with a line for each.
  void refuse() const {
    if (lines_.empty()) return;
    std::vector<std::string> shown = lines_;
    if (shown.size() > kMostShown) {
      shown.resize(kMostShown);
      shown.push_back(str(lines_.size() - kMostShown, " more; correct these first"));
    }
    fail(ExitCode::kUsage, "config", join(shown, "\n  and "));
  }

 private:
  // "[config] wanted …": the module is said once, before all of them.
  static std::string without_module(const std::string& message) {
    const size_t end = message.starts_with('[') ? message.find("] ") : message.npos;
    return end == message.npos ? message : message.substr(end + 2);
  }

  static constexpr size_t kMostShown = 20;
  std::vector<std::string> lines_;
  std::set<std::string> open_;
};

}  // namespace octavo::config
