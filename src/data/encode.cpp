#include "data/encode.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace octavo::data {
namespace {

// Text under way: units are admitted while they fit, and always one.
constexpr uint64_t kBudgetBytes = uint64_t{128} << 20;

}  // namespace

struct OrderedEncoder::State {
  struct Slot {
    Unit unit;
    EncodedUnit result;
    std::exception_ptr error;
    bool done = false;
    uint64_t bytes = 0;
  };

  State(const EncodeContext& shared, UnitPosition start, UnitPosition end)
      : context(shared), reader(shared.sources, start, {}, shared.format.fields(), end) {}

  void push(std::shared_ptr<Slot> slot) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] {
      return stop || ordered.empty() || bytes_under_way + slot->bytes <= kBudgetBytes;
    });
    bytes_under_way += slot->bytes;
    if (!slot->done) todo.push_back(slot);
    ordered.push_back(std::move(slot));
    changed.notify_all();
  }

  void read() {
    try {
      for (;;) {
        auto unit = reader.next();
        if (!unit) break;
        auto slot = std::make_shared<Slot>();
        slot->bytes = unit->text.size();
        slot->unit = std::move(*unit);
        push(std::move(slot));
        const std::lock_guard lock(mutex);
        if (stop) return;
      }
    } catch (...) {
      auto slot = std::make_shared<Slot>();
      slot->error = std::current_exception();
      slot->done = true;
      push(std::move(slot));
    }
    const std::lock_guard lock(mutex);
    read_all = true;
    changed.notify_all();
  }

  void encode() {
    for (;;) {
      std::shared_ptr<Slot> slot;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return stop || !todo.empty() || read_all; });
        if (stop || todo.empty()) return;
        slot = std::move(todo.front());
        todo.pop_front();
      }
      try {
        slot->result = encode_unit(context, slot->unit);
      } catch (...) {
        slot->error = std::current_exception();
      }
      slot->unit.text = {};
      slot->unit.places = {};
      const std::lock_guard lock(mutex);
      slot->done = true;
      changed.notify_all();
    }
  }

  const EncodeContext& context;
  UnitReader reader;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Slot>> ordered, todo;
  uint64_t bytes_under_way = 0;
  bool read_all = false, stop = false;
  std::vector<std::thread> threads;
};

OrderedEncoder::OrderedEncoder(const EncodeContext& context, UnitPosition start, int workers,
                               UnitPosition end)
    : state_(std::make_unique<State>(context, start, end)) {
  State* state = state_.get();
  state->threads.emplace_back([state] { state->read(); });
  for (int i = 0; i < workers; ++i) state->threads.emplace_back([state] { state->encode(); });
}

OrderedEncoder::~OrderedEncoder() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

std::optional<EncodedUnit> OrderedEncoder::next() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] {
    return state_->ordered.empty() ? state_->read_all : state_->ordered.front()->done;
  });
  if (state_->ordered.empty()) return std::nullopt;
  const auto slot = std::move(state_->ordered.front());
  state_->ordered.pop_front();
  state_->bytes_under_way -= slot->bytes;
  state_->changed.notify_all();
  if (slot->error) std::rethrow_exception(slot->error);
  return std::move(slot->result);
}

}  // namespace octavo::data
