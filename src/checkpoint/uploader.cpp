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
#include "checkpoint/manifest.h"
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
  UploadClock::time_point begin = UploadClock::now();
  std::atomic<uint64_t> sent{0}, bytes{0};  // for progress
  int64_t failed = 0;                       // attempts
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
    const std::optional<fs::path> left =
        next_ ? next_ : (current_ ? std::optional(current_->upload.folder) : std::nullopt);
    if (left)
      log_warn(str("CHECKPOINT NOT UPLOADED: ", left->string(), " is on the disk and not in ",
                   address_, "; a run that resumes from it uploads it"));
  }
  changed_.notify_all();
  thread_.join();
}

void Uploader::add(const fs::path& checkpoint) {
  const std::lock_guard lock(mutex_);
  if (next_ && *next_ != checkpoint) {
    ++counts_.passed_over;
    log_info(str("checkpoint: ", step_text(*next_), " is not uploaded, ", step_text(checkpoint),
                 " is newer"));
  }
  next_ = checkpoint;
  changed_.notify_all();
}

bool Uploader::in_use(const fs::path& checkpoint) const {
  const std::lock_guard lock(mutex_);
  const auto is_it = [&](const fs::path& path) {
    return path.filename() == checkpoint.filename();  // all are of one folder
  };
  return (next_ && is_it(*next_)) || (current_ && is_it(current_->upload.folder));
}

// With the lock, which is let go while nothing is to be done.
void Uploader::take_next(std::unique_lock<std::mutex>& lock) {
  if (current_ && next_ && current_->failed > 0) {
    log_info(str("checkpoint: the upload of ", step_text(current_->upload.folder), " gives way to ",
                 step_text(*next_), ", which is newer"));
    ++counts_.passed_over;
    current_.reset();
  }
  if (current_) return;
  changed_.wait(lock, [&] { return ends_ || next_; });
  if (ends_) return;
  current_ = std::make_unique<Job>();
  Job& job = *current_;
  job.upload.address = address_;
  job.upload.folder = *next_;
  job.upload.check = [this] {
    const std::lock_guard guard(mutex_);
    if (ends_) throw UploadEnded();
  };
  job.upload.on_progress = [&job] {
    job.sent = job.upload.sent;
    job.bytes = job.upload.bytes;
  };
  next_.reset();
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
                            read_manifest(job.upload.folder).extra);
  } catch (const Error& error) {
    log_warn(str("checkpoint: older checkpoints in ", address_, " were not looked through (",
                 error.what(), "); the next upload does it"));
  }
  const std::lock_guard lock(mutex_);
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
    if (problem.empty()) {
      current_.reset();
      changed_.notify_all();
      continue;
    }
    ++job.failed;
    ++counts_.failed;
    ++counts_.failed_in_a_row;
    const double wait = options_.wait_scale *
                        upload_wait(job.failed, std::uniform_real_distribution<>(0, 1)(random));
    log_warn(str("CHECKPOINT NOT UPLOADED: ", step_text(job.upload.folder), ": ", problem,
                 hopeless ? " — it is not tried again"
                          : str(" — attempt ", job.failed + 1, " in ", format_duration(wait)),
                 "; training continues, the checkpoint is on the disk"));
    if (hopeless) current_.reset();
    changed_.notify_all();
    if (!hopeless)
      changed_.wait_for(lock, std::chrono::duration<double>(wait), [&] { return ends_; });
  }
}

std::string Uploader::progress_text() const {
  if (!current_) return "";
  return str(step_text(current_->upload.folder), ", ",
             format_bytes(static_cast<double>(current_->sent.load())), " of ",
             format_bytes(static_cast<double>(current_->bytes.load())),
             current_->failed > 0 ? str(", attempt ", current_->failed + 1) : "");
}

bool Uploader::wait(int64_t attempts, const std::function<bool()>& give_up,
                    const std::function<void()>& on_progress) {
  constexpr auto kLook = std::chrono::milliseconds(100);
  constexpr double kSay = 5;  // seconds between lines
  std::unique_lock lock(mutex_);
  const int64_t failed_before = counts_.failed;
  auto said = UploadClock::now() - std::chrono::seconds(4);
  uint64_t sent_before = 0;
  while (current_ || next_) {
    const uint64_t sent = current_ ? current_->sent.load() : 0;
    if (std::exchange(sent_before, sent) != sent && on_progress) on_progress();
    if (counts_.failed - failed_before >= attempts || (give_up && give_up())) return false;
    if (const std::string text = progress_text(); !text.empty() && seconds_since(said) > kSay) {
      log_info(str("checkpoint: waiting for the upload of ", text));
      said = UploadClock::now();
    }
    changed_.wait_for(lock, kLook);
  }
  return counts_.failed_in_a_row == 0;
}

Uploader::Counts Uploader::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

Json Uploader::receipt() const {
  const Counts c = counts();
  return {{"address", address_},
          {"uploads", c.uploads},
          {"there_before", c.there_before},
          {"failed_attempts", c.failed},
          {"passed_over", c.passed_over},
          {"removed", c.removed},
          {"bytes", c.bytes},
          {"last_seconds", c.last_seconds}};
}

}  // namespace octavo::checkpoint
