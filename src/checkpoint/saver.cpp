#include "checkpoint/saver.h"

#include <ATen/ATen.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "checkpoint/folders.h"
#include "checkpoint/manifest.h"
#include "checkpoint/pieces.h"
#include "checkpoint/save_job.h"
#include "checkpoint/snapshot.h"

namespace octavo::checkpoint {
namespace {

// Of the thread that writes: a tenth of a core that training wants too, so that it gets on.
constexpr int kNice = 10;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of this thread alone; threads that it starts have it too.
void lower_priority() {
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  if (::setpriority(PRIO_PROCESS, thread, kNice) != 0)
    log_warn_once("checkpoint: the priority of the saving thread could not be lowered");
}

uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (uint64_t value = 0; file >> name >> value;) {
    if (name == "MemAvailable:") return value << 10;
    std::getline(file, unit);
  }
  return 0;
}

uint64_t budget_of(const SaverOptions& options) {
  if (options.memory_budget > 0) return options.memory_budget;
  return available_memory() / 4 / static_cast<uint64_t>(std::max(1, options.processes));
}

// Of a step that is saved again: a checkpoint that was to stay is replaced by one that stays.
bool is_marked_permanent(const fs::path& checkpoint) {
  try {
    return read_manifest(checkpoint).permanent;
  } catch (const Error&) {
    return false;  // there is none
  }
}

}  // namespace

struct Saver::Running {
  SaveJob job;
  std::unique_ptr<Snapshot> snapshot;
  std::thread thread;
  std::atomic<double> latest{0};  // when it must have ended; 0: no such time
  std::atomic<bool> ended{false}, succeeded{false};
};

Saver::Saver(fs::path checkpoint_dir, SaverOptions options)
    : directory_(std::move(checkpoint_dir)), options_(std::move(options)) {}

Saver::~Saver() {
  if (running_ == nullptr) return;
  running_->latest = seconds_now() + options_.last_patience;
  finish();
}

std::unique_ptr<Saver::Running> Saver::prepare(State state, SaveOptions options) {
  auto running = std::make_unique<Running>();
  SaveJob& job = running->job;
  job.directory = directory_;
  job.options = std::move(options);
  if (job.options.permanent_due > counts().permanent_step) {
    job.options.permanent = true;
    if (state.step != job.options.permanent_due)
      log_info(str("checkpoint: step ", state.step, " is permanent in place of step ",
                   job.options.permanent_due, ", which was not saved"));
  }
  job.options.permanent |= is_marked_permanent(directory_ / step_folder_name(state.step));
  job.part = options_.part;
  job.number = ++number_;
  job.timeout = options_.timeout;
  job.own = job.part.ranks > 1 ? share_of(state, job.part) : state.groups;
  job.state = std::move(state);
  for (auto& [group, tensors] : job.own)
    for (auto& [name, tensor] : tensors) {
      if (!tensor.defined()) continue;  // refused by the writer, with its name
      if (job.state.changing.contains(group))
        tensor = tensor.detach().clone(at::MemoryFormat::Contiguous);
      else if (!tensor.is_contiguous())
        tensor = tensor.detach().contiguous();
    }
  job.check = [latest = &running->latest] {
    if (*latest > 0 && seconds_now() > *latest)
      fail(ExitCode::kStopped, "checkpoint",
           "given up: this rank's run has ended, and other ranks did not finish their parts");
  };
  return running;
}

void Saver::count_success(const SaveJob& job, double seconds) {
  const std::lock_guard lock(mutex_);
  ++counts_.saves;
  counts_.failed_in_a_row = 0;
  counts_.last_seconds = seconds;
  counts_.written += seconds;
  if (job.options.permanent) counts_.permanent_step = job.state.step;
}

void Saver::count_failure(double seconds) {
  const std::lock_guard lock(mutex_);
  ++counts_.saves;
  ++counts_.failed;
  ++counts_.failed_in_a_row;
  counts_.written += seconds;
}

void Saver::finish_before(int64_t step) {
  const double begin = seconds_now();
  if (running_ != nullptr && !running_->ended) {
    log_info(str("checkpoint: step ", step, " is due while step ", running_->job.state.step,
                 " is still being saved; waiting for it"));
    const std::lock_guard lock(mutex_);
    ++counts_.waits;
  }
  finish();
  const std::lock_guard lock(mutex_);
  counts_.held += seconds_now() - begin;
}

void Saver::start(State state, SaveOptions options) {
  finish_before(state.step);
  const double begin = seconds_now();
  auto prepared = prepare(std::move(state), std::move(options));
  check_job(prepared->job);
  prepared->snapshot = std::make_unique<Snapshot>(prepared->job.own);
  running_ = std::move(prepared);
  Running& running = *running_;
  running.job.feed = [&running](const std::string& group, const std::string& name,
                                const ByteConsumer& take) {
    running.snapshot->feed(group, name, take);
  };
  running.thread = std::thread([this, &running, begin] {
    lower_priority();
    try {
      const fs::path path = run_save(running.job);
      running.succeeded = true;
      if (options_.on_saved && running.job.part.rank == 0)
        options_.on_saved(path, running.job.options.permanent);
    } catch (const std::exception& error) {
      log_warn(str("CHECKPOINT NOT SAVED: step ", running.job.state.step, ": ", error.what(),
                   " — training continues; earlier checkpoints are untouched"));
    }
    running.snapshot->close();
    if (running.succeeded)
      count_success(running.job, seconds_now() - begin);
    else
      count_failure(seconds_now() - begin);
    running.ended = true;
  });
  const std::lock_guard lock(mutex_);
  counts_.held += seconds_now() - begin;
}

void Saver::before_update() {
  if (running_ == nullptr || running_->ended) return;
  const double begin = seconds_now();
  const uint64_t budget = budget_of(options_);
  const Snapshot::SecureStats secured = running_->snapshot->secure(budget);
  if (secured.waited > 0)
    log_info(str("checkpoint: ", format_bytes(static_cast<double>(secured.waited)), " of step ",
                 running_->job.state.step, " did not fit into the ",
                 format_bytes(static_cast<double>(budget)),
                 " of memory for copies; the update waited until they were on the disk"));
  const std::lock_guard lock(mutex_);
  counts_.copied += secured.copied;
  counts_.waited += secured.waited;
  counts_.held += seconds_now() - begin;
}

void Saver::finish() {
  if (running_ == nullptr) return;
  if (running_->thread.joinable()) running_->thread.join();
  last_succeeded_ = running_->succeeded;
  running_.reset();
}

bool Saver::wait() {
  finish();
  return last_succeeded_;
}

fs::path Saver::save(State state, SaveOptions options) {
  finish();
  const double begin = seconds_now();
  last_succeeded_ = false;
  try {
    const auto running = prepare(std::move(state), std::move(options));
    fs::path path = run_save(running->job);
    last_succeeded_ = true;
    count_success(running->job, seconds_now() - begin);
    if (options_.on_saved && options_.part.rank == 0)
      options_.on_saved(path, running->job.options.permanent);
    return path;
  } catch (...) {
    count_failure(seconds_now() - begin);
    throw;
  }
}

void Saver::leave_out(int64_t step, const std::string& reason) {
  finish();
  last_succeeded_ = false;
  count_failure(0);
  if (options_.part.rank == 0)
    log_warn(str("CHECKPOINT NOT SAVED: step ", step, ": ", reason,
                 "; earlier checkpoints are untouched"));
}

bool Saver::is_saving() const {
  return running_ != nullptr && !running_->ended;
}

Saver::Counts Saver::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

Json Saver::receipt() const {
  const Counts c = counts();
  return {{"saves", c.saves},         {"failed", c.failed},       {"waits", c.waits},
          {"copied_bytes", c.copied}, {"waited_bytes", c.waited}, {"held_seconds", c.held},
          {"save_seconds", c.written}};
}

}  // namespace octavo::checkpoint
