#include "train/guards/hang_watch.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "base/error.h"
#include "base/host.h"
#include "base/log.h"
#include "base/rank_status.h"
#include "base/thread_stack.h"

namespace octavo::train {
namespace {

using heartbeat::Wait;
using std::chrono::milliseconds;

constexpr auto kRelaxed = std::memory_order_relaxed;
// Of a process that hangs: its own files and sockets may be what it hangs in.
constexpr std::chrono::seconds kLastWords{8};
constexpr int kLater = 4;  // questions: the one that hangs has a stack to show, and speaks first
constexpr milliseconds kForOthers{500};  // to hear it, when the store is in this process

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

milliseconds interval_of(double timeout) {
  return milliseconds(static_cast<int64_t>(1e3 * std::clamp(timeout / 60, 0.05, 1.0)));
}

clockid_t clock_of_this_thread() {
  clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
  ::pthread_getcpuclockid(::pthread_self(), &clock);
  return clock;
}

double seconds_of(clockid_t clock) {
  timespec time{};
  return ::clock_gettime(clock, &time) == 0
             ? static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec)
             : 0;
}

}  // namespace

HangWatch::HangWatch(double timeout, dist::World& world, const DeviceProgress& progress,
                     bool on_cpu)
    : timeout_(timeout),
      world_(world),
      progress_(progress),
      main_thread_(heartbeat::own_thread()),
      main_clock_(clock_of_this_thread()),
      judge_({.timeout = timeout, .alone = world.size() == 1, .on_cpu = on_cpu}) {
  prepare_thread_stacks();
  thread_ = std::thread([this] { run(); });
}

HangWatch::~HangWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  own_page().hang_limit = 0;
}

void HangWatch::run() {
  ::pthread_setname_np(::pthread_self(), "octavo-hangs");
  const milliseconds interval = interval_of(timeout_);
  RankPage& page = own_page();
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    // For the launcher, which sees by it whether this process runs at all.
    page.pulse = static_cast<int64_t>(1e9 * monotonic_seconds());
    page.hang_limit = static_cast<int64_t>(1e9 * timeout_);
    const double now = monotonic_seconds();
    switch (judge_.look(now, signs())) {
      case Verdict::kFine:
        break;
      case Verdict::kSlow:
        say_slow();
        break;
      case Verdict::kWaits:
        on_wait(now);
        break;
      case Verdict::kHangs:
        end_run(str(where(), " hangs: no progress for ", so_far(), ": it ", doing()),
                Failure::kHang, world_.rank());
    }
    lock.lock();
    changed_.wait_for(lock, interval, [this] { return stopping_; });
  }
}

Signs HangWatch::signs() {
  const heartbeat::Beats& beats = heartbeat::beats();
  Signs signs{.main = beats.main.load(kRelaxed),
              .loader = beats.loader.load(kRelaxed),
              .device = device_moves_,
              .wait = beats.wait.load(kRelaxed),
              .exempt = beats.exempt.load(kRelaxed) != nullptr,
              .cpu_seconds = seconds_of(main_clock_)};
  if (!judge_.is_quiet()) device_asked_ = false;
  if (!judge_.is_quiet()) return signs;
  try {
    const DeviceProgress::State device = progress_.look();
    if (device_asked_ && device.finished != device_finished_) ++device_moves_;
    device_finished_ = device.finished;  // what has finished when it is first asked is no progress
    device_asked_ = true;
    signs.device = device_moves_;
    signs.device_works = device_works_ = device.works;
  } catch (const std::exception& error) {
    if (!device_failed_) log_warn(str("hang_timeout: the device does not answer: ", error.what()));
    device_failed_ = true;
  }
  return signs;
}

std::string HangWatch::where() const {
  return str("rank ", world_.rank(), " (", host_name(), ", process ", ::getpid(), ")");
}

std::string HangWatch::so_far() const {
  return str(static_cast<int64_t>(judge_.quiet()), " s at step ",
             heartbeat::beats().step.load(kRelaxed));
}

std::string HangWatch::doing() const {
  const heartbeat::Beats& beats = heartbeat::beats();
  switch (beats.wait.load(kRelaxed)) {
    case Wait::kRanks:
      return "waits in " + beats.collective.get();
    case Wait::kLoader:
      return str("waits for the loader, which has read ", beats.loader.load(kRelaxed),
                 " samples and no more");
    case Wait::kDevice: {
      const std::string collective = beats.collective.get();
      return str("waits for the device, which has finished ", device_finished_,
                 " passes and no more", collective.empty() ? "" : "; begun last was " + collective);
    }
    case Wait::kNothing:
      break;
  }
  const std::string stretch = beats.stretch.get();
  if (stretch.empty()) return "has begun nothing yet";
  return str(beats.inside.load(kRelaxed) ? "is in '" : "is behind '", stretch, "'",
             device_works_ ? ", and the device has not finished what it was given" : "");
}

std::string HangWatch::stacks() const {
  const heartbeat::Beats& beats = heartbeat::beats();
  std::string text = "main thread:\n" + stack_of_thread(main_thread_);
  if (const int32_t worker = beats.worker.load(kRelaxed); worker != 0 && worker != main_thread_)
    text += "thread that showed progress last:\n" + stack_of_thread(worker);
  if (const int32_t loader = beats.loader_thread.load(kRelaxed);
      loader != 0 && beats.wait.load(kRelaxed) == Wait::kLoader)
    text += "loader:\n" + stack_of_thread(loader);
  return text;
}

void HangWatch::say_slow() const {
  heartbeat::beats().notices.fetch_add(1, kRelaxed);
  const char* const why = heartbeat::beats().exempt.load(kRelaxed);
  log_warn(str(where(), " has shown no progress for ", so_far(), ": it ", doing(),
               "; it is not ended: ", why != nullptr ? why : "its main thread computes"));
}

dist::WaitingPlace HangWatch::place() const {
  const heartbeat::Beats& beats = heartbeat::beats();
  if (beats.wait.load(kRelaxed) != Wait::kRanks)  // which collective the device is in is not known
    return {.name = str("device, step ", beats.step.load(kRelaxed)),
            .order = beats.collectives.load(kRelaxed),
            .size = world_.size(),
            .rank = world_.rank()};
  return {.name = beats.collective.get(),
          .order = beats.collectives.load(kRelaxed),
          .first = beats.group_first.load(kRelaxed),
          .stride = beats.group_stride.load(kRelaxed),
          .size = beats.group_size.load(kRelaxed),
          .rank = beats.group_rank.load(kRelaxed)};
}

void HangWatch::on_wait(double now) {
  if (now < next_question_) return;
  next_question_ = now + timeout_ / 60;
  const dist::WaitingPlace here = place();
  try {
    const std::optional<dist::AbsentRanks> absent = world_.absent(here);
    const bool is_new = waits_at_ != here.name;
    waits_at_ = here.name;
    if (is_new) all_wait_ = 0;
    if (is_new) said_waits_ = false;
    if (absent) judge_all(here, *absent);
    if (said_waits_ || (absent && is_new)) return;  // others may be about to say that they are here
    said_waits_ = true;
    heartbeat::beats().notices.fetch_add(1, kRelaxed);
    log_warn(str(where(), " has waited ", so_far(), " and only waits: it ", doing(),
                 absent ? "; not there: " + absent->text() : std::string()));
  } catch (const std::exception& error) {
    log_warn(str("hang_timeout: the store could not be asked which ranks wait: ", error.what()));
  }
}

// Where everybody waits, nobody ends it but this.
void HangWatch::judge_all(const dist::WaitingPlace& here, const dist::AbsentRanks& absent) {
  if (absent.count == 0)
    end_run(
        str("all ", here.size, " ranks wait and none hangs by itself: no progress for ", so_far(),
            ": each ", doing(), "; the network between them, or a GPU, does not deliver"),
        Failure::kNetwork, world_.rank());
  if (!absent.all_elsewhere()) return;
  const auto& behind = *std::ranges::min_element(
      absent.elsewhere, {}, [](const auto& other) { return other.place.order; });
  // Several that are behind wait for each other as well: none of them is to blame by that alone.
  const auto with_behind = std::ranges::count(absent.elsewhere, behind.place.order,
                                              [](const auto& other) { return other.place.order; });
  if (behind.place.order > here.order && here.size - absent.count == 1)
    end_run(
        str(where(), " hangs: no progress for ", so_far(), ": it ", doing(),
            ", which others have behind them: rank ", behind.rank, " waits in ", behind.place.name),
        Failure::kHang, world_.rank());
  if (++all_wait_ < kLater) return;
  if (behind.place.order < here.order && with_behind == 1)
    end_run(str("rank ", behind.rank, " hangs: no progress for ", so_far(), ": it waits in ",
                behind.place.name, ", which others have behind them: rank ", world_.rank(), " ",
                doing()),
            Failure::kHang, behind.rank);
  end_run(str("all ranks wait and none hangs by itself, not in the same place: no progress for ",
              so_far(), ": rank ", world_.rank(), " ", doing(), ", rank ", behind.rank, " in ",
              behind.place.name),
          Failure::kNetwork, world_.rank());
}

std::unique_ptr<HangWatch> watch_over_hangs(double timeout, dist::World& world,
                                            TrainedModel& trained) {
  if (timeout <= 0) return nullptr;
  trained.device_progress = std::make_unique<DeviceProgress>(trained.device());
  return std::make_unique<HangWatch>(timeout, world, *trained.device_progress,
                                     trained.device().is_cpu());
}

void HangWatch::end_run(const std::string& text, Failure failure, int hanging) {
  own_page().hanging = hanging == world_.rank() ? 0 : static_cast<uint32_t>(hanging) + 1;
  note_failure(failure);
  constexpr int kCode = static_cast<int>(ExitCode::kEnvironment);
  const std::string line =
      str(text, "; this rank ends with exit code ", kCode, " (hang_timeout ", timeout_, ")");
  static std::atomic<bool> said{false};
  std::thread([line] {
    std::this_thread::sleep_for(kLastWords);
    // The main thread may hang with a lock of the log.
    const std::string raw = "error: " + line + "\n";
    if (!said && ::write(STDERR_FILENO, raw.data(), raw.size()) < 0) std::_Exit(kCode);
    std::_Exit(kCode);
  }).detach();
  // The launcher shows the last line, so that is the one that says it all.
  log_error(str("stacks of rank ", world_.rank(), ", ", stacks()));
  log_error(line);
  said = true;
  world_.announce_hang(text);
  std::this_thread::sleep_for(world_.size() == 1 ? milliseconds(0) : kForOthers);
  std::_Exit(kCode);
}

}  // namespace octavo::train
