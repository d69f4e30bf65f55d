#pragma once
// Saves of a run, by one process or by many ranks together, in the background while training goes
// on.
//
//   Saver saver(directory, {.part = {rank, ranks, shards, token}});
//   loop: train_step: …forward, backward…, saver.before_update(), update
//         saver.start(state, options)     now and then
//   end:  saver.wait() or saver.save(state, options)
//
// The ranks of a run make the same calls in the same order. There is no collective in here: they
// meet in the file system (save_job.h). Tensors of a state must not change between start() and the
// end of the next before_update(), but for State::changing.

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "base/json.h"
#include "checkpoint/checkpoint.h"

namespace octavo::checkpoint {

struct SaveJob;

struct SaverOptions {
  Part part;
  double timeout = 600;      // seconds that ranks wait for each other
  double last_patience = 3;  // the same when this rank's run has ended, maybe because of another
  // Memory for copies of what the disk has not taken when the next update is due; 0: a quarter of
  // what is available then, divided by `processes`, the ranks on this machine.
  uint64_t memory_budget = 0;
  int processes = 1;
  // On the first rank, once a checkpoint has its name; from the thread that saved it. Must not
  // throw.
  std::function<void(const fs::path& checkpoint, bool permanent)> on_saved;
};

class Saver {
 public:
  Saver(fs::path checkpoint_dir, SaverOptions options);
  // Finishes this process's part of a save in progress and waits for other ranks a few seconds
  // more: they may be gone. wait() before to be sure.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Returns at once; waits for a save that is still in progress, and says so. A failure is a
  // warning and is counted; training continues.
  void start(State state, SaveOptions options);
  // What start() does first, for callers whose state says what became of the save in progress.
  void finish_before(int64_t step);
  // Call right before weights or moments change. Returns when the save in progress no longer needs
  // them.
  void before_update();
  // Until the save in progress has ended. Whether the last save succeeded; true when there was
  // none.
  bool wait();
  // In the foreground, after the one in progress. A failure is an error. On return the checkpoint
  // has its name, on all ranks.
  fs::path save(State state, SaveOptions options);
  // A save that the caller refuses to make: says so, and counts it as one that failed. After the
  // one in progress.
  void leave_out(int64_t step, const std::string& reason);

  struct Counts {
    int64_t saves = 0, failed = 0;    // ended; and of these
    int64_t failed_in_a_row = 0;      // up to now
    double last_seconds = 0;          // of the last that succeeded, from start to end; 0: none did
    int64_t permanent_step = 0;       // of the last permanent one that succeeded; 0: none did
    int64_t waits = 0;                // for a save that was still in progress
    uint64_t copied = 0, waited = 0;  // bytes before updates: copied, and waited for
    double held = 0;                  // seconds that training stood still
    double written = 0;               // seconds of all saves, from start to end
  };
  Counts counts() const;
  const fs::path& directory() const { return directory_; }
  bool is_saving() const;  // in the background, now
  Json receipt() const;

 private:
  struct Running;
  std::unique_ptr<Running> prepare(State state, SaveOptions options);
  void finish();
  void count_success(const SaveJob& job, double seconds);
  void count_failure(double seconds);

  fs::path directory_;
  SaverOptions options_;
  int number_ = 0;
  bool last_succeeded_ = true;
  std::unique_ptr<Running> running_;
  mutable std::mutex mutex_;  // of counts_
  Counts counts_;
};

}  // namespace octavo::checkpoint
