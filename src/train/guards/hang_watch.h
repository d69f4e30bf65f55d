#pragma once
// A thread that looks at this rank's signs of life (base/heartbeat.h). A rank without progress is
// named within hang_timeout seconds, with the stack of its main thread and what it waits for, and
// ends with exit code 3, from which the launcher starts the run again (`hang` in
// launch/rank_ends.cpp). One that waits for other ranks names those that have not come, and does
// not end: the one that hangs does, and ends them all. Only when all have come, and wait
// nevertheless, the first of them ends the run.

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/failure.h"
#include "dist/world.h"
#include "train/guards/device_progress.h"
#include "train/guards/hang_judge.h"
#include "train/trained_model.h"

namespace octavo::train {

class HangWatch {
 public:
  // On the main thread, which it watches from here on. `progress` outlives it, as `world` does.
  HangWatch(double timeout, dist::World& world, const DeviceProgress& progress, bool on_cpu);
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

 private:
  void run();
  Signs signs();
  void say_slow() const;
  void on_wait(double now);
  void judge_all(const dist::WaitingPlace& here, const dist::AbsentRanks& absent);
  dist::WaitingPlace place() const;
  // Why this rank leaves: the launcher counts a hang against the node of the rank that hangs, and
  // what the network may have done against none.
  [[noreturn]] void end_run(const std::string& text, Failure failure, int hanging);
  std::string where() const;   // "rank 2 (node7, process 4711)"
  std::string so_far() const;  // "45 s at step 12"
  std::string doing() const;   // "waits in all-reduce of loss (#5, group all)"
  std::string stacks() const;  // of the threads that it is about

  const double timeout_;
  dist::World& world_;
  const DeviceProgress& progress_;
  const int32_t main_thread_;
  const clockid_t main_clock_;
  HangJudge judge_;
  double next_question_ = 0;    // when the store is asked again
  int all_wait_ = 0;            // questions here by which all wait
  std::string waits_at_;        // the place that was asked about
  bool said_waits_ = false;     // of it
  bool device_failed_ = false;  // it could not be asked, which was said
  bool device_asked_ = false;   // since the main thread became quiet
  bool device_works_ = false;   // it said
  uint64_t device_finished_ = 0, device_moves_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

// From the first step to the last; none with a time-out of 0. What comes before has time limits of
// its own, or may take hours (data that is prepared, weights that are loaded); what comes after is
// a checkpoint and a report.
std::unique_ptr<HangWatch> watch_over_hangs(double timeout, dist::World& world,
                                            TrainedModel& trained);

}  // namespace octavo::train
