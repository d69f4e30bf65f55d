#include "data/stages.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"

namespace octavo::data {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kFirstWait{50}, kLongestWait{2000};

class StageRun {
 public:
  StageRun(WorkFolder& folder, const Stage& stage) : folder_(folder), stage_(stage) {
    if (!stage.quiet && stage.items > 0)
      progress_.emplace(stage.label, static_cast<double>(stage.items), "");
  }

  size_t run() {
    while (!all_done()) {
      check_stop(folder_);
      if (do_one(false) || do_one(true)) {
        wait_ = kFirstWait;
        continue;
      }
      if (wait_ >= kLongestWait && !said_) {
        said_ = true;
        log_info(str("data: ", stage_.label, ": every item is taken; waiting for ",
                     folder_.others(), " other processes"));
      }
      std::this_thread::sleep_for(wait_);
      wait_ = std::min(2 * wait_, kLongestWait);
    }
    if (progress_) progress_->finish();
    return own_;
  }

 private:
  bool all_done() {
    const std::set<std::string> names = folder_.done();
    std::erase_if(open_, [&](const std::string& item) { return names.contains(item); });
    if (progress_)
      progress_->set(static_cast<double>(stage_.items - open_.size()),
                     str(own_, " by this process"));
    return open_.empty();
  }

  // What nobody has; or, when all is taken, what somebody had who is gone.
  bool do_one(bool taken) {
    const std::set<std::string> claimed = folder_.claimed();
    for (const std::string& item : open_) {
      if (claimed.contains(item) != taken || !folder_.claim(item)) continue;
      const size_t number = std::stoull(item.substr(item.rfind('-') + 1));
      folder_.publish(item, stage_.work(number));
      ++own_;
      return true;
    }
    return false;
  }

  static std::set<std::string> all_items(const Stage& stage) {
    std::set<std::string> items;
    for (size_t i = 0; i < stage.items; ++i) items.insert(item_name(stage.name, i));
    return items;
  }

  WorkFolder& folder_;
  const Stage& stage_;
  std::set<std::string> open_ = all_items(stage_);
  std::optional<Progress> progress_;
  size_t own_ = 0;
  milliseconds wait_ = kFirstWait;
  bool said_ = false;
};

}  // namespace

void check_stop(const WorkFolder& folder) {
  if (stop_requested())
    fail(ExitCode::kStopped, "data", "stopped by ", stop_reason(), " in ", folder.path().string(),
         "; run the same command to continue");
}

std::string item_name(const std::string& stage, size_t number) {
  char text[24];
  std::snprintf(text, sizeof text, "-%06zu", number);
  return stage + text;
}

size_t do_stage(WorkFolder& folder, const Stage& stage) {
  return StageRun(folder, stage).run();
}

}  // namespace octavo::data
