#include "monitor/async_sink.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <variant>

#include "base/error.h"
#include "base/log.h"
#include "monitor/gpu_use.h"

namespace octavo::monitor {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kGpuReadings = std::chrono::seconds(1);

struct EndRecord {
  int exit_code = 1;
};
struct AliveRecord {};

using Record =
    std::variant<StepRecord, EvalRecord, TaskRecord, SampleRecord, Flag, AliveRecord, EndRecord>;

int64_t weight_of(const Record& record) {
  const auto* step = std::get_if<StepRecord>(&record);
  return 1 + (step != nullptr ? static_cast<int64_t>(step->fp8_tensors.size()) / 16 : 0);
}

void hand_to(Sink& sink, const Record& record) {
  if (const auto* step = std::get_if<StepRecord>(&record))
    sink.on_step(*step);
  else if (const auto* eval = std::get_if<EvalRecord>(&record))
    sink.on_eval(*eval);
  else if (const auto* task = std::get_if<TaskRecord>(&record))
    sink.on_task(*task);
  else if (const auto* sample = std::get_if<SampleRecord>(&record))
    sink.on_sample(*sample);
  else if (const auto* flag = std::get_if<Flag>(&record))
    sink.on_flag(*flag);
  else if (std::holds_alternative<AliveRecord>(record))
    sink.on_alive();
  else
    sink.on_end(std::get<EndRecord>(record).exit_code);
}

}  // namespace

std::optional<double> mfu_of(const Peaks& peaks, double tokens_per_second) {
  if (peaks.bf16_per_second <= 0 || peaks.flops_per_token <= 0) return std::nullopt;
  const double fp8 = peaks.fp8_per_second > 0 ? peaks.fp8_share : 0;
  double seconds = peaks.flops_per_token * (1 - fp8) / peaks.bf16_per_second;
  if (fp8 > 0) seconds += peaks.flops_per_token * fp8 / peaks.fp8_per_second;
  return seconds * tokens_per_second;
}

// Outlives the AsyncSink when a sink hangs: the thread then keeps it alone.
struct AsyncSink::Shared {
  struct Slot {
    std::unique_ptr<Sink> sink;
    std::atomic<int64_t> threw{0};
  };
  std::deque<Slot> slots;
  std::mutex mutex;
  std::condition_variable filled, emptied, ended_changed;
  std::deque<Record> queue;
  int64_t weight = 0, most_weight = 0, records = 0;
  std::atomic<int64_t> dropped{0};
  bool closed = false, ended = false;
  Limits limits;
  std::thread thread;

  bool push(Record record);
  Record take();
  void run();
  void deliver(const Record& record);
};

bool AsyncSink::Shared::push(Record record) {
  const int64_t added = weight_of(record);
  {
    const std::lock_guard lock(mutex);
    if (closed) return false;
    const bool is_end = std::holds_alternative<EndRecord>(record);
    if (weight + added > limits.waiting && !is_end) {
      if (dropped++ == 0)
        log_warn(str(limits.what,
                     ": what takes them does not keep up, records are dropped; training continues, "
                     "and receipt.json says how many"));
      return false;
    }
    ++records;
    weight += added;
    most_weight = std::max(most_weight, weight);
    closed = is_end;
    queue.push_back(std::move(record));
  }
  filled.notify_one();
  return true;
}

Record AsyncSink::Shared::take() {
  std::unique_lock lock(mutex);
  filled.wait(lock, [&] { return !queue.empty(); });
  Record record = std::move(queue.front());
  queue.pop_front();
  return record;
}

void AsyncSink::Shared::deliver(const Record& record) {
  for (Slot& slot : slots) {
    try {
      hand_to(*slot.sink, record);
    } catch (const std::exception& error) {
      if (slot.threw++ == 0)
        log_warn(str(limits.what, ": ", slot.sink->name(), " failed (", error.what(),
                     "); training continues, and receipt.json counts it"));
    }
  }
}

void AsyncSink::Shared::run() {
  // Signals are the training thread's; a file at its size limit is an error to count (SIGXFSZ
  // would end the process).
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  ::pthread_setname_np(::pthread_self(), limits.thread.c_str());
  const auto reader = limits.reads_gpus ? std::make_unique<GpuReader>() : nullptr;
  std::vector<GpuUse> gpus;
  if (reader != nullptr) gpus = reader->read();
  Clock::time_point read_at = Clock::now();
  for (bool over = false; !over;) {
    Record record = take();
    if (auto* step = std::get_if<StepRecord>(&record)) {
      if (!gpus.empty() && Clock::now() - read_at >= kGpuReadings) {
        gpus = reader->read();
        read_at = Clock::now();
      }
      step->gpus = gpus;
    }
    const int64_t taken = weight_of(record);
    deliver(record);
    over = std::holds_alternative<EndRecord>(record);
    const std::lock_guard lock(mutex);
    weight -= taken;
    if (weight == 0) emptied.notify_all();
  }
  {
    const std::lock_guard lock(mutex);
    ended = true;
  }
  ended_changed.notify_all();
}

AsyncSink::AsyncSink(std::vector<std::unique_ptr<Sink>> sinks, const Peaks& peaks,
                     const Limits& limits)
    : shared_(std::make_shared<Shared>()),
      peaks_(peaks),
      seconds_to_end_(limits.seconds_to_end),
      start_ns_(Clock::now().time_since_epoch().count()) {
  shared_->limits = limits;
  for (auto& sink : sinks) shared_->slots.emplace_back().sink = std::move(sink);
  shared_->thread = std::thread([shared = shared_] { shared->run(); });
}

AsyncSink::~AsyncSink() {
  shared_->push(EndRecord{});  // nothing when on_end() was called
  std::unique_lock lock(shared_->mutex);
  shared_->ended_changed.wait_for(lock, std::chrono::duration<double>(seconds_to_end_),
                                  [&] { return shared_->ended; });
  const bool ended = shared_->ended;
  lock.unlock();
  if (ended)
    shared_->thread.join();
  else
    shared_->thread.detach();
}

void AsyncSink::on_step(const StepRecord& record) {
  StepRecord copy = record;
  const std::chrono::duration<double> since =
      Clock::now().time_since_epoch() - Clock::duration(start_ns_);
  if (!record.skipped) useful_seconds_ += record.seconds - record.data_wait_seconds;
  copy.goodput = std::min(1.0, useful_seconds_ / std::max(since.count(), 1e-9));
  copy.mfu = mfu_of(peaks_, record.tokens_per_second);
  shared_->push(std::move(copy));
}

void AsyncSink::on_eval(const EvalRecord& record) {
  shared_->push(record);
}

void AsyncSink::on_task(const TaskRecord& record) {
  shared_->push(record);
}

void AsyncSink::on_sample(const SampleRecord& record) {
  shared_->push(record);
}

void AsyncSink::on_flag(const Flag& flag) {
  shared_->push(flag);
}

void AsyncSink::on_alive() {
  shared_->push(AliveRecord{});
}

void AsyncSink::settle(std::chrono::milliseconds patience) const {
  std::unique_lock lock(shared_->mutex);
  shared_->emptied.wait_for(lock, patience, [&] { return shared_->weight == 0; });
}

void AsyncSink::on_end(int exit_code) {
  shared_->push(EndRecord{exit_code});
  std::unique_lock lock(shared_->mutex);
  if (shared_->ended_changed.wait_for(lock, std::chrono::duration<double>(seconds_to_end_),
                                      [&] { return shared_->ended; }))
    return;
  const size_t left = shared_->queue.size();
  lock.unlock();
  shared_->dropped += static_cast<int64_t>(left);
  seconds_to_end_ = 0;  // the destructor has nothing more to wait for
  log_warn(str(shared_->limits.what, ": what takes them hangs; ", left,
               " records are not written and the run ends"));
}

int64_t AsyncSink::failures() const {
  int64_t sum = shared_->dropped;
  for (const auto& slot : shared_->slots) sum += slot.sink->failures() + slot.threw;
  return sum;
}

Json AsyncSink::receipt() const {
  Json sinks = Json::object();
  for (const auto& slot : shared_->slots) {
    Json one = {{"failures", slot.sink->failures() + slot.threw}};
    for (const auto& [name, count] : slot.sink->counts()) one[name] = count;
    sinks[std::string(slot.sink->name())] = std::move(one);
  }
  const std::lock_guard lock(shared_->mutex);
  return {{"records", shared_->records},
          {"dropped", shared_->dropped.load()},
          {"most_waiting", shared_->most_weight},
          {"sinks", std::move(sinks)}};
}

}  // namespace octavo::monitor
