#include "data/stages.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"

namespace octavo::data {
namespace {

using std::chrono::milliseconds, std::chrono::steady_clock;
constexpr milliseconds kFirstWait{50}, kLongestWait{2000};
// To list what is done takes as long as the list: a twentieth of the time at most goes into it.
constexpr steady_clock::duration kLeastBetweenLists = std::chrono::seconds(1);
constexpr int kListShare = 20;
constexpr size_t kProbes = 16;  // of open items, before the list is read again

// Items are claimed without asking first which of them others have: claim() finds out. So that
// processes do not meet at each item they begin at different places, go on from item to item, and
// at another place where somebody was before them.
class StageRun {
 public:
  StageRun(WorkFolder& folder, const Stage& stage)
      : folder_(folder), stage_(stage), random_(std::hash<std::string>{}(folder.id())) {
    for (size_t i = 0; i < stage.items; ++i) open_.insert(open_.end(), i);
    if (!stage.quiet && stage.items > 0)
      progress_.emplace(stage.label, static_cast<double>(stage.items), "");
  }

  StageResult run() {
    list();
    if (!open_.empty() && folder_.others() > 0) next_ = random_() % stage_.items;
    while (!open_.empty()) {
      check_stop(folder_);
      if (steady_clock::now() >= list_at_) list();
      if (take_near() || take_any()) {
        wait_ = kFirstWait;
        continue;
      }
      if (!open_.empty()) wait();
    }
    if (progress_) progress_->finish();
    return result_;
  }

 private:
  // Forgets what others have done.
  void list() {
    const auto begin = steady_clock::now();
    const std::set<std::string> names = folder_.done();
    std::erase_if(open_, [&](size_t number) { return names.contains(name_of_item(number)); });
    ++result_.listings;
    const auto end = steady_clock::now();
    list_at_ = end + std::max(kLeastBetweenLists, kListShare * (end - begin));
    show();
  }

  // The next open item, or where somebody was before, some others.
  bool take_near() {
    for (size_t tries = std::min(kProbes, open_.size()); tries > 0; --tries) {
      auto item = open_.lower_bound(next_);
      if (item == open_.end()) item = open_.begin();
      if (take(*item)) return true;
      next_ = random_() % stage_.items;
    }
    return false;
  }

  // One that is neither done nor somebody's who lives, if there is one.
  bool take_any() {
    list();
    for (const size_t number : open_)
      if (take(number)) return true;
    return false;
  }

  bool take(size_t number) {
    const std::string item = name_of_item(number);
    if (!folder_.claim(item)) return false;
    folder_.publish(item, stage_.work(number));
    open_.erase(number);
    next_ = number + 1;
    ++result_.items;
    show();
    return true;
  }

  void wait() {
    if (wait_ >= kLongestWait && !said_) {
      said_ = true;
      log_info(str("data: ", stage_.label, ": every item is taken; waiting for ", folder_.others(),
                   " other processes"));
    }
    std::this_thread::sleep_for(wait_);
    wait_ = std::min(2 * wait_, kLongestWait);
    list_at_ = steady_clock::now() + kLeastBetweenLists;  // take_any() lists now
  }

  std::string name_of_item(size_t number) const { return item_name(stage_.name, number); }

  void show() {
    if (progress_)
      progress_->set(static_cast<double>(stage_.items - open_.size()),
                     str(result_.items, " by this process"));
  }

  WorkFolder& folder_;
  const Stage& stage_;
  std::set<size_t> open_;  // not known to be done
  std::mt19937_64 random_;
  size_t next_ = 0;
  steady_clock::time_point list_at_;
  std::optional<Progress> progress_;
  StageResult result_;
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

StageResult do_stage(WorkFolder& folder, const Stage& stage) {
  return StageRun(folder, stage).run();
}

}  // namespace octavo::data
