#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/checked.h"
#include "base/error.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "data/mixed_tokens.h"
#include "data/sample_order.h"
#include "data/shard.h"
#include "data/token_data.h"

namespace octavo::data {

namespace {

// Of a split, that may be left out. More is no accident.
constexpr double kMostDamaged = 0.05;

constexpr uint64_t kExpectedBytes = uint64_t{32} << 20;  // of samples, ahead of the next one

void check_share(const TokenData& data, const Error& error) {
  uint64_t damaged = 0;
  for (const DamagedRange& range : data.damage()) damaged += range.end - range.begin;
  if (static_cast<double>(damaged) > kMostDamaged * static_cast<double>(data.tokens()))
    fail(ExitCode::kDamaged, "data", "data_damage skip leaves out at most ", 100 * kMostDamaged,
         "% of a split, found ", damaged, " of ", data.tokens(), " tokens damaged: ", error.what());
}

}  // namespace

struct Loader::State {
  State(std::shared_ptr<const TokenData> source, const Options& wanted, const Position& start)
      : data(std::move(source)),
        options(wanted),
        from(start),
        order(*data, wanted, start),
        position(start.samples),
        stream(order.stream()),
        expected(start.samples) {
    if (stream == nullptr) return;
    const uint64_t bytes = static_cast<uint64_t>(options.length) * data->token_bytes();
    const uint64_t batches = kExpectedBytes / bytes / static_cast<uint64_t>(options.rows);
    expect_ahead = std::max<uint64_t>(1, batches) * global_rows();
  }

  uint64_t global_rows() const {
    return static_cast<uint64_t>(options.rows) * static_cast<uint64_t>(options.world);
  }

  // Tells the stream of the samples that come next, from `row` of this batch on: what was read
  // before it was told of would be read again, for nobody.
  void expect_samples(uint64_t row) {
    const auto rows = static_cast<uint64_t>(options.rows);
    if (expected < position) {
      expected = position;
      expected_rows = 0;
    }
    if (expected == position) expected_rows = std::max(expected_rows, row);
    for (; expected < position + expect_ahead; expected += global_rows(), expected_rows = 0) {
      const uint64_t first = expected + static_cast<uint64_t>(options.rank) * rows;
      for (; expected_rows < rows; ++expected_rows) {
        const uint64_t place = first + expected_rows;
        if (options.end > 0 && place >= options.end) return;
        if (!stream->expect(order.at(place) * static_cast<uint64_t>(options.length))) return;
      }
    }
  }

  Batch read_batch() {
    const auto rows = static_cast<uint64_t>(options.rows);
    Batch batch{.rows = options.rows, .length = options.length};
    batch.inputs.reserve(rows * static_cast<uint64_t>(options.length));
    batch.targets.reserve(rows * static_cast<uint64_t>(options.length));
    const uint64_t first = position + static_cast<uint64_t>(options.rank) * rows;
    const MixedTokens* mixed = data->mixed();
    if (mixed != nullptr) {
      batch.sources.assign(rows, 0);  // rows without a sample: they have no loss tokens
      batch.source_tokens.assign(mixed->sources().size(), 0);
    }
    for (uint64_t row = 0; row < rows; ++row) {
      if (stream != nullptr) expect_samples(row);
      sequence_length = length_at(first + row);
      if (options.end > 0 && first + row >= options.end) {
        add_nothing(batch);
        continue;
      }
      batch.samples.push_back(order.at(first + row));
      const uint64_t begin = batch.samples.back() * static_cast<uint64_t>(options.length);
      const int64_t tokens_before = batch.loss_tokens;
      if (data->sample_length() > 0)
        add_packed(begin, batch);
      else
        add_plain(begin, batch);
      if (mixed == nullptr) continue;
      const size_t source = mixed->source_of(batch.samples.back());
      batch.sources[row] = static_cast<int32_t>(source);
      batch.source_tokens[source] += static_cast<int32_t>(batch.loss_tokens - tokens_before);
    }
    position += global_rows();
    if (options.end > 0) position = std::min(position, options.end);
    batch.after = {position, from.order, from.mixture};
    return batch;
  }

  // False: damaged, and to be left out.
  bool read_sample(uint64_t begin) {
    heartbeat::beats().loader.fetch_add(1, std::memory_order_relaxed);
    try {
      if (stream != nullptr)
        stream->read(begin, sample);
      else
        data->read(begin, sample);
      return true;
    } catch (const DamagedShard& damage) {
      if (!options.skip_damaged) throw;
      check_share(*data, damage);
      log_warn_once(str("DATA DAMAGED: ", damage.what(),
                        " — samples that touch it are left out (data_damage skip)"));
      return false;
    }
  }

  int64_t length_at(uint64_t place) const {
    const auto after = std::ranges::upper_bound(options.lengths, place, {}, &LengthStage::at);
    return after == options.lengths.begin() ? options.length : (after - 1)->length;
  }

  // One, and those that the stage and ends of documents make.
  void add_starts(Batch& batch, bool with_documents) const {
    const size_t base = batch.inputs.size();
    const auto length = static_cast<size_t>(options.length);
    for (size_t first = 0; first < length; first += static_cast<size_t>(sequence_length)) {
      batch.starts.push_back(static_cast<int32_t>(base + first));
      if (!with_documents) continue;
      // The last token of a sequence has no other behind it to begin one with.
      const auto at = [&](size_t i) { return sample.begin() + static_cast<std::ptrdiff_t>(i); };
      const auto last = at(first + static_cast<size_t>(sequence_length) - 1);
      for (auto i = at(first); (i = std::find(i, last, options.document_end)) != last;)
        batch.starts.push_back(
            static_cast<int32_t>(base + static_cast<size_t>(++i - sample.begin())));
    }
  }

  void add_nothing(Batch& batch) {
    const auto length = static_cast<size_t>(options.length);
    add_starts(batch, false);
    batch.inputs.insert(batch.inputs.end(), length, 0);
    batch.targets.insert(batch.targets.end(), length, -1);
  }

  void leave_out(Batch& batch) {
    add_nothing(batch);
    ++batch.left_out;
  }

  void add_plain(uint64_t begin, Batch& batch) {
    sample.resize(static_cast<size_t>(options.length) + 1);
    if (!read_sample(begin)) return leave_out(batch);
    // The token that ends a document still has the next one's first as its target: it is the only
    // place where a model learns how documents begin.
    add_starts(batch, options.document_end >= 0);
    batch.inputs.insert(batch.inputs.end(), sample.begin(), sample.end() - 1);
    batch.targets.insert(batch.targets.end(), sample.begin() + 1, sample.end());
    batch.loss_tokens += options.length;
  }

  // A token is a target of the one before it, when both are of one document and it is to be
  // in the loss.
  void add_packed(uint64_t begin, Batch& batch) {
    sample.resize(static_cast<size_t>(options.length));
    if (!read_sample(begin)) return leave_out(batch);
    for (size_t i = 0; i < sample.size(); ++i) {
      const auto word = static_cast<uint32_t>(sample[i]);
      const uint32_t next = i + 1 < sample.size() ? static_cast<uint32_t>(sample[i + 1]) : 0;
      if (i == 0 || (word & kStartFlag) != 0)
        batch.starts.push_back(static_cast<int32_t>(batch.inputs.size()));
      const bool in_loss = (next & kLossFlag) != 0 && (next & kStartFlag) == 0;
      batch.inputs.push_back(static_cast<int32_t>(word & kIdMask));
      batch.targets.push_back(in_loss ? static_cast<int32_t>(next & kIdMask) : -1);
      batch.loss_tokens += in_loss ? 1 : 0;
    }
  }

  void run() {
    ::pthread_setname_np(::pthread_self(), "octavo-loader");
    thread_number = heartbeat::own_thread();
    try {
      while (options.end == 0 || position < options.end) {
        Batch batch = read_batch();
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return stop || ready.size() < size_t(options.read_ahead); });
        if (stop) return;
        ready.push_back(std::move(batch));
        changed.notify_all();
      }
      const std::lock_guard lock(mutex);
      ended = true;
      changed.notify_all();
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
      changed.notify_all();
    }
  }

  std::shared_ptr<const TokenData> data;
  Options options;
  Position from;  // where it began
  SampleOrder order;
  uint64_t position;  // of the next global batch; the reading thread's own, as the next four are
  std::unique_ptr<TokenStream> stream;  // null: samples come from anywhere in the data
  uint64_t expected;                    // the global batch that the stream is told of next…
  uint64_t expected_rows = 0;           // …and its rows that it was told of
  uint64_t expect_ahead = 0;
  std::vector<int32_t> sample;
  int64_t sequence_length = 0;  // of the sample's place

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Batch> ready;
  std::exception_ptr error;
  bool stop = false, ended = false;
  double waited = 0;
  std::atomic<int32_t> thread_number{0};  // in the kernel
  std::thread thread;
};

namespace {

void check(const TokenData& data, const Loader::Options& options, const Order& order) {
  if (options.rows < 1 || options.length < 1 || options.world < 1 || options.read_ahead < 1 ||
      options.rank < 0 || options.rank >= options.world)
    fail(ExitCode::kUsage, "data", "wanted rows, length, world and read_ahead of at least 1 and ",
         "0 <= rank < world, found rows ", options.rows, ", length ", options.length, ", rank ",
         options.rank, ", world ", options.world, ", read_ahead ", options.read_ahead,
         "; check batch_size and max_seq_length");
  for (const LengthStage& stage : options.lengths)
    if (stage.length < 1 || options.length % stage.length != 0)
      fail(ExitCode::kUsage, "data", "wanted sequences that divide ", options.length,
           " tokens, found ", stage.length, "; check length_schedule");
  if (!options.lengths.empty() && data.sample_length() > 0)
    fail(ExitCode::kUsage, "data",
         "length_schedule cuts text into shorter sequences, and rows with answers are packed "
         "whole; leave it out");
  if (options.rows > (int64_t{1} << 31) / options.length)
    fail(ExitCode::kUsage, "data", "wanted at most 2^31 tokens in a batch, found ", options.rows,
         " x ", options.length, "; lower batch_size");
  if (const char* problem = problem_of(order); problem[0] != '\0')
    fail(ExitCode::kDamaged, "data", "the order of samples of the position: ", problem,
         "; resume from another checkpoint");
  if (sample_count(data, options.length) == 0)
    fail(ExitCode::kUsage, "data", "wanted at least ",
         options.length + (data.sample_length() == 0 ? 1 : 0), " tokens for one sample, found ",
         data.tokens(), "; prepare more text or lower max_seq_length");
}

}  // namespace

Loader::Loader(std::shared_ptr<const TokenData> data, const Options& options,
               const Position& start) {
  check(*data, options, start.order);
  state_ = std::make_unique<State>(std::move(data), options, start);
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  heartbeat::beats().loader_thread.store(state_->thread_number, std::memory_order_relaxed);
  const heartbeat::Waiting waiting(
      heartbeat::Wait::kLoader);  // a read that hangs holds it here too
  state_->thread.join();
}

// Batches read before an error are handed out first.
Batch Loader::next() {
  heartbeat::beats().loader_thread.store(state_->thread_number, std::memory_order_relaxed);
  const heartbeat::Waiting waiting(heartbeat::Wait::kLoader);
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock,
                       [&] { return !state_->ready.empty() || state_->error || state_->ended; });
  state_->waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (state_->ready.empty() && state_->error) std::rethrow_exception(state_->error);
  OCTAVO_ASSERT(!state_->ready.empty());  // nobody asks behind the last sample
  Batch batch = std::move(state_->ready.front());
  state_->ready.pop_front();
  state_->changed.notify_all();
  return batch;
}

double Loader::wait_seconds() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waited;
}

uint64_t Loader::samples_per_epoch() const {
  return state_->order.samples();
}

uint64_t Loader::bytes_read() const {
  return state_->stream == nullptr ? 0 : state_->stream->bytes_read();
}

uint64_t Loader::end() const {
  return state_->options.end;
}

}  // namespace octavo::data
