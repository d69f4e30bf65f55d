#include "checkpoint/uploader.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "checkpoint/upload.h"

namespace octavo::checkpoint {
namespace {

using UploadClock = std::chrono::steady_clock;

constexpr double kFirstUploadWait = 1, kMostUploadWait = 60;  // seconds
constexpr int kUploadNice = 10;  // training gets the processor first, as from saves

double seconds_since(UploadClock::time_point begin) {
  return std::chrono::duration<double>(UploadClock::now() - begin).count();
}

// The upload is over, and nothing failed.
struct UploadEnded {};

std::string step_text(const fs::path& checkpoint) {
  return checkpoint.filename().string();
}

}  // namespace

double upload_wait(int64_t failed, double chance) {
  const double doubled =
      kFirstUploadWait *
      std::pow(2.0, static_cast<double>(std::max<int64_t>(0, std::min<int64_t>(failed, 20) - 1)));
  return std::min(doubled, kMostUploadWait) * (0.75 + 0.5 * chance);
}

struct Uploader::Job {
  UploadJob upload;
  bool permanent = false;
  UploadClock::time_point begin;            // of the first attempt
  UploadClock::time_point not_before;       // of the next one
  std::atomic<uint64_t> sent{0}, bytes{0};  // for progress
  int64_t failed = 0;                       // attempts
  int64_t failed_in_wait = 0;  // of them, since wait() began or since the last upload of any
};

Uploader::Uploader(std::string address, std::shared_ptr<object_store::ObjectStore> store,
                   UploaderOptions options)
    : address_(std::move(address)), store_(std::move(store)), options_(options) {
  thread_ = std::thread([this] { work(); });
}

Uploader::~Uploader() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    if (const std::vector<std::string> names = left(); !names.empty())
      log_warn(str("CHECKPOINT NOT UPLOADED: ", join(names, ", "), ": on the disk and not in ",
                   address_, "; a run that resumes uploads its latest and the permanent ones"));
  }
  changed_.notify_all();
  thread_.join();
}

// With the lock: what is neither in the bucket nor given up.
std::vector<Uploader::Job*> Uploader::jobs_left() const {
  std::vector<Job*> jobs;
  if (current_) jobs.push_back(current_.get());
  if (next_) jobs.push_back(next_.get());
  for (const auto& job : permanent_) jobs.push_back(job.get());
  return jobs;
}

// With the lock.
std::vector<std::string> Uploader::left() const {
  std::vector<std::string> names;
  for (const Job* job : jobs_left()) names.push_back(job->upload.folder.string());
  return names;
}

std::unique_ptr<Uploader::Job> Uploader::make_job(const fs::path& checkpoint, bool permanent) {
  auto made = std::make_unique<Job>();
  made->permanent = permanent;
  made->upload.address = address_;
  made->upload.folder = checkpoint;
  made->upload.check = [this] {
    const std::lock_guard guard(mutex_);
    if (ends_) throw UploadEnded();
  };
  made->upload.on_progress = [job = made.get()] {
    job->sent = job->upload.sent;
    job->bytes = job->upload.bytes;
  };
  return made;
}

// With the lock: the one that was to be uploaded next goes, for one that is newer.
void Uploader::pass_over(const Job& older, const fs::path& newer) {
  ++counts_.passed_over;
  log_info(str("checkpoint: ", step_text(older.upload.folder), " is not uploaded, ",
               step_text(newer), " is newer"));
}

void Uploader::add(const fs::path& checkpoint, bool permanent) {
  const std::lock_guard lock(mutex_);
  // Of an earlier save of the step: its files are no longer there.
  std::erase_if(permanent_, [&](const auto& job) {
    return job->upload.folder.filename() == checkpoint.filename();
  });
  given_up_.erase(step_text(checkpoint));
  counts_.given_up = static_cast<int64_t>(given_up_.size());
  newest_ = step_text(checkpoint);
  newest_is_lost_ = false;
  if (next_ && next_->upload.folder != checkpoint) pass_over(*next_, checkpoint);
  next_.reset();
  auto job = make_job(checkpoint, permanent);
  if (permanent)
    permanent_.push_back(std::move(job));
  else
    next_ = std::move(job);
  changed_.notify_all();
}

// With the lock.
bool Uploader::is_waiting(const fs::path& checkpoint) const {
  const auto is_it = [&](const auto& job) {
    return job->upload.folder.filename() == checkpoint.filename();  // all are of one folder
  };
  return (next_ && is_it(next_)) || std::ranges::any_of(permanent_, is_it);
}

bool Uploader::in_use(const fs::path& checkpoint) const {
  const std::lock_guard lock(mutex_);
  return is_waiting(checkpoint) ||
         (current_ && current_->upload.folder.filename() == checkpoint.filename());
}

// With the lock: makes one that is due the current one, if there is any.
bool Uploader::take_due() {
  const auto now = UploadClock::now();
  const auto is_due = [&](const auto& job) { return job->not_before <= now; };
  const auto permanent = std::ranges::find_if(permanent_, is_due);
  // In turns: where uploads are slower than saves, neither kind keeps the other waiting for ever.
  if (next_ && is_due(next_) && (permanent == permanent_.end() || !permanent_is_next_)) {
    current_ = std::move(next_);
    permanent_is_next_ = true;
  } else if (permanent != permanent_.end()) {
    current_ = std::move(*permanent);
    permanent_.erase(permanent);
    permanent_is_next_ = false;
  }
  if (current_ && current_->failed == 0) current_->begin = now;
  return current_ != nullptr;
}

// With the lock, which is let go while nothing is due.
void Uploader::take_next(std::unique_lock<std::mutex>& lock) {
  while (!ends_ && !take_due()) {
    auto first = UploadClock::time_point::max();
    if (next_) first = next_->not_before;
    for (const auto& job : permanent_) first = std::min(first, job->not_before);
    if (first == UploadClock::time_point::max())
      changed_.wait(lock);
    else
      changed_.wait_until(lock, first);  // or until one is added
  }
}

// With the lock: the current one failed, and waits for its next attempt while others have theirs.
void Uploader::put_back(const std::string& problem, bool hopeless, double seconds) {
  std::unique_ptr<Job> job = std::move(current_);
  ++job->failed;
  ++job->failed_in_wait;
  ++counts_.failed;
  ++counts_.failed_in_a_row;
  const fs::path folder = job->upload.folder;
  const bool is_saved_again = is_waiting(folder);
  const std::string then = is_saved_again ? "it was saved again, and is uploaded as it is now"
                           : hopeless
                               ? "it is not tried again"
                               : str("attempt ", job->failed + 1, " in ", format_duration(seconds));
  log_warn(str("CHECKPOINT NOT UPLOADED: ", step_text(folder), ": ", problem, " — ", then,
               "; training continues, the checkpoint is on the disk"));
  if (is_saved_again) return;
  if (hopeless) {
    if (job->permanent)
      given_up_.insert(step_text(folder));
    else if (step_text(folder) == newest_)
      newest_is_lost_ = true;
    counts_.given_up = static_cast<int64_t>(given_up_.size());
    return;
  }
  job->not_before = UploadClock::now() + std::chrono::duration_cast<UploadClock::duration>(
                                             std::chrono::duration<double>(seconds));
  if (job->permanent)
    permanent_.push_back(std::move(job));
  else if (next_)
    pass_over(*job, next_->upload.folder);
  else
    next_ = std::move(job);
}

// What is to be uploaded after the current one, by name.
std::set<std::string> Uploader::waiting() const {
  const std::lock_guard lock(mutex_);
  std::set<std::string> names;
  if (next_) names.insert(step_text(next_->upload.folder));
  for (const auto& job : permanent_) names.insert(step_text(job->upload.folder));
  return names;
}

// One, without the lock. Throws what went wrong.
void Uploader::attempt(Job& job) {
  const Uploaded how = upload_checkpoint(*store_, job.upload);
  const double seconds = seconds_since(job.begin);
  const auto size = format_bytes(static_cast<double>(job.upload.bytes));
  if (how == Uploaded::kNow)
    log_info(str("checkpoint: ", step_text(job.upload.folder), " is uploaded to ", address_, " (",
                 size, " in ", format_duration(seconds), ")"));
  else
    log_info(str("checkpoint: ", step_text(job.upload.folder), " was in ", address_, " already"));
  int64_t removed = 0;
  try {
    removed = keep_uploaded(*store_, address_, options_.keep, options_.permanent_every,
                            job.upload.extra, waiting());
  } catch (const Error& error) {
    log_warn(str("checkpoint: older checkpoints in ", address_, " were not looked through (",
                 error.what(), "); the next upload does it"));
  }
  const std::lock_guard lock(mutex_);
  for (Job* left_over : jobs_left()) left_over->failed_in_wait = 0;
  ++counts_.uploads;
  counts_.there_before += how == Uploaded::kBefore ? 1 : 0;
  counts_.failed_in_a_row = 0;
  counts_.removed += removed;
  counts_.bytes += how == Uploaded::kNow ? job.upload.bytes : 0;
  counts_.last_seconds = seconds;
}

void Uploader::work() {
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  if (::setpriority(PRIO_PROCESS, thread, kUploadNice) != 0)
    log_warn_once("checkpoint: the priority of the uploading thread could not be lowered");
  std::minstd_rand random(std::random_device{}());
  std::unique_lock lock(mutex_);
  for (;;) {
    take_next(lock);
    if (ends_) return;
    Job& job = *current_;
    lock.unlock();
    std::string problem;
    bool hopeless = false;
    try {
      attempt(job);
    } catch (const UploadEnded&) {
      return;
    } catch (const Error& error) {
      problem = error.what();
      hopeless = error.code() != ExitCode::kEnvironment ||       // damaged
                 failure_of(error) == Failure::kStorageRefused;  // gone from the disk
    } catch (const std::exception& error) {
      problem = error.what();
    }
    lock.lock();
    const double chance = std::uniform_real_distribution<>(0, 1)(random);
    if (problem.empty())
      current_.reset();
    else
      put_back(problem, hopeless, options_.wait_scale * upload_wait(job.failed + 1, chance));
    changed_.notify_all();
  }
}

std::string Uploader::progress_text() const {
  const Job* job = current_.get();
  if (job == nullptr) job = next_.get();  // it waits for its next attempt
  if (job == nullptr && !permanent_.empty()) job = permanent_.front().get();
  if (job == nullptr) return "";
  return str(step_text(job->upload.folder), ", ",
             format_bytes(static_cast<double>(job->sent.load())), " of ",
             format_bytes(static_cast<double>(job->bytes.load())),
             job->failed > 0 ? str(", attempt ", job->failed + 1) : "");
}

bool Uploader::wait(int64_t attempts, const std::function<bool()>& give_up,
                    const std::function<void()>& on_progress) {
  constexpr auto kLook = std::chrono::milliseconds(100);
  constexpr double kSay = 5;  // seconds between lines
  std::unique_lock lock(mutex_);
  for (Job* job : jobs_left()) job->failed_in_wait = 0;
  const auto is_out = [&](const Job* job) { return job->failed_in_wait >= attempts; };
  auto said = UploadClock::now() - std::chrono::seconds(4);
  uint64_t sent_before = 0;
  while (current_ || next_ || !permanent_.empty()) {
    const uint64_t sent = current_ ? current_->sent.load() : sent_before;
    if (std::exchange(sent_before, sent) != sent && on_progress) on_progress();
    if (std::ranges::all_of(jobs_left(), is_out) || (give_up && give_up())) return false;
    if (const std::string text = progress_text(); !text.empty() && seconds_since(said) > kSay) {
      log_info(str("checkpoint: waiting for the upload of ", text));
      said = UploadClock::now();
    }
    changed_.wait_for(lock, kLook);
  }
  return counts_.failed_in_a_row == 0 && counts_.given_up == 0 && !newest_is_lost_;
}

Uploader::Counts Uploader::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

bool Uploader::only_given_up_is_missing() const {
  const std::lock_guard lock(mutex_);
  return counts_.given_up > 0 && jobs_left().empty() && !newest_is_lost_;
}

Json Uploader::receipt() const {
  const Counts c = counts();
  return {{"address", address_},
          {"uploads", c.uploads},
          {"there_before", c.there_before},
          {"failed_attempts", c.failed},
          {"passed_over", c.passed_over},
          {"given_up", c.given_up},
          {"removed", c.removed},
          {"bytes", c.bytes},
          {"last_seconds", c.last_seconds}};
}

}  // namespace octavo::checkpoint
