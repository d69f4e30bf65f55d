#pragma once
// A thread in every rank that waits for the alarm which the first rank (or launcher) raises that
// knows the run cannot continue. A rank whose main thread hangs in a collective can so still say
// that it lives, and the ranks that say nothing are the lost ones:
//
//   1. whoever sees a collective fail raises the alarm;
//   2. every rank's watch answers it with lost/<rank>;
//   3. the first to answer waits a little, asks the store who is missing and publishes the verdict;
//   4. every rank ends with it: its main thread when its collective fails, or, when that hangs on,
//      the watch ends the process.

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/key_value_store.h"
#include "launch/rank_info.h"

namespace octavo::dist {

class Watch {
 public:
  Watch(launch::RankInfo rank_info, std::shared_ptr<KeyValueStore> store);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  int rank() const { return rank_info_.rank; }
  int ranks() const { return rank_info_.ranks; }
  int generation() const { return rank_info_.generation; }

  KeyValueStore& store() { return *store_; }

  // What this rank is doing, for messages of the others.
  void set_where(const std::string& where);
  // From here on this rank leaves by itself with `code`, and says `why` last; the watch only sees
  // to it that it does.
  void set_leaving(int code, const std::string& why);
  // From here on this rank works without the others: their ends no longer end it.
  void set_alone();
  // Raises the alarm and returns the verdict: which ranks are lost, or which left and why.
  std::string ask(const std::string& why);
  // Has an alarm been raised, or did this rank say that it leaves?
  bool failed() const;

 private:
  void run();
  bool is_stopping() const;
  bool is_alone() const;
  std::string store_is_lost() const;
  std::string wait_for_alarm();
  std::string verdict_on(const std::string& alarm);
  struct MissingRanks {
    rendezvous::Missing missing;
    std::vector<std::pair<int64_t, std::string>> dead;  // of them, and how they ended
    std::chrono::milliseconds waited{0};
  };
  MissingRanks missing_ranks();
  std::string survey();
  void say(const std::string& verdict) const;
  void publish(const std::string& verdict);
  void end_process_unless_it_ends(const std::string& alarm);

  const launch::RankInfo rank_info_;
  const std::shared_ptr<KeyValueStore> store_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string where_ = "a place it has not said";
  std::optional<std::string> verdict_;
  std::optional<int> leaving_;
  std::string why_leaving_;
  bool stopping_ = false;
  bool alone_ = false;
  std::thread thread_;
};

}  // namespace octavo::dist
