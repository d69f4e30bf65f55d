#pragma once
// Uploads of a run's checkpoints, in the background: the disk has them first, and training never
// waits. One process of a run does it, the first rank, since all ranks save into one folder.
//
//   Uploader uploader("s3://bucket/prefix/run", object_store::s3(), {.keep = 3});
//   uploader.add(folder)      after each save, from any thread; returns at once
//   uploader.wait(seconds)    at the end
//
// The one saved last comes first: a checkpoint whose upload has not begun when the next is saved is
// passed over, and one whose upload fails gives way to it. What fails is tried again, a little
// later each time, and the others need not wait for that. Permanent checkpoints are never passed
// over: they wait, and take turns with the others. One that cannot be uploaded, since it is damaged
// or gone, is given up: then wait() says that not all is there, as it does of the last of all.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "object_store/object_store.h"

namespace octavo::checkpoint {

// Seconds before attempt 2, 3, …: twice as long each time, a quarter more or less by chance (0 to
// 1), so that the runs of a cluster do not come back together.
double upload_wait(int64_t failed, double chance);

struct UploaderOptions {
  int keep = 0;  // of the run's uploaded checkpoints, as SaveOptions has them
  int64_t permanent_every = 0;
  // Sleeps between attempts; a test's may be short. Multiplied with upload_wait().
  double wait_scale = 1;
};

class Uploader {
 public:
  Uploader(std::string address, std::shared_ptr<object_store::ObjectStore> store,
           UploaderOptions options);
  // Ends an upload in progress at its next part, and says what was not uploaded.
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  void add(const fs::path& checkpoint, bool permanent = false);
  // Whether a checkpoint is being uploaded or about to be: its folder must stay.
  bool in_use(const fs::path& checkpoint) const;

  struct Counts {
    int64_t uploads = 0;  // that ended, of which the checkpoint was there before:
    int64_t there_before = 0;
    int64_t failed = 0;           // attempts
    int64_t failed_in_a_row = 0;  // up to now
    int64_t passed_over = 0;      // for a newer one
    int64_t given_up = 0;         // permanent ones that are damaged or gone
    int64_t removed = 0;          // there, by keep
    uint64_t bytes = 0;
    double last_seconds = 0;  // of the last that succeeded, with its failed attempts
  };
  Counts counts() const;
  // What is not in the bucket is given up: trying again, also by another run, helps nothing.
  bool only_given_up_is_missing() const;
  Json receipt() const;
  const std::string& address() const { return address_; }

  // Until nothing is left to upload, with progress. Gives up when `give_up` says so, and when each
  // checkpoint that is left has had `attempts` failed ones from now on without an upload of any
  // between them; returns whether all is uploaded. `on_progress`: called while bytes are sent.
  // Neither may ask the uploader.
  bool wait(int64_t attempts, const std::function<bool()>& give_up,
            const std::function<void()>& on_progress = {});

 private:
  struct Job;
  void work();
  void attempt(Job& job);
  std::unique_ptr<Job> make_job(const fs::path& checkpoint, bool permanent);
  void pass_over(const Job& older, const fs::path& newer);
  bool is_waiting(const fs::path& checkpoint) const;
  std::set<std::string> waiting() const;
  void put_back(const std::string& problem, bool hopeless, double seconds);
  bool take_due();
  void take_next(std::unique_lock<std::mutex>& lock);
  std::vector<Job*> jobs_left() const;
  std::vector<std::string> left() const;
  std::string progress_text() const;

  const std::string address_;
  const std::shared_ptr<object_store::ObjectStore> store_;
  const UploaderOptions options_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::unique_ptr<Job> current_;
  std::unique_ptr<Job> next_;                   // of those that are not permanent
  std::deque<std::unique_ptr<Job>> permanent_;  // that wait, in their order
  bool permanent_is_next_ = false;              // the last one was not
  std::set<std::string> given_up_;              // permanent ones, by name
  std::string newest_;                          // the one added last, by name
  bool newest_is_lost_ = false;                 // it is damaged or gone, and not permanent
  Counts counts_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace octavo::checkpoint
