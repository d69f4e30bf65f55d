#include "data/encode.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace octavo::data {
namespace {

// Text under way: units are let in while they fit, and always one.
constexpr uint64_t kBudgetBytes = uint64_t{128} << 20;

// The part of a unit's `tokens` that is training when the cut falls inside the `bytes` from
// `begin`.
uint64_t tokens_before_cut(uint64_t tokens, uint64_t begin, uint64_t bytes, uint64_t cut) {
  if (cut >= begin + bytes) return tokens;
  if (cut <= begin) return 0;
  return static_cast<uint64_t>(static_cast<unsigned __int128>(tokens) * (cut - begin) / bytes);
}

// Adds where in the input a tokenizer's or parser's complaint arose.
void encode_at(const EncodeContext& context, std::string_view text, const std::string& place,
               std::vector<tokenizer::TokenId>& out) {
  try {
    context.tokenizer.encode(text, out);
  } catch (const Error& error) {
    fail(error.code(), "data", place, ": ", error.what());
  }
}

void encode_text(const EncodeContext& context, const Unit& unit, EncodedUnit& result) {
  const Source& source = context.sources[unit.start.file];
  const uint64_t file_begin = context.begins[unit.start.file];
  const uint64_t file_end = context.begins[unit.start.file + 1];
  encode_at(context, unit.text, source.path.string(), result.tokens);
  if (unit.start.offset == 0 && !result.tokens.empty()) result.documents.push_back(0);
  if (file_end == context.last_end) {
    result.train_tokens = tokens_before_cut(result.tokens.size(), file_begin + unit.start.offset,
                                            unit.text.size(), context.val_begin);
    return;
  }
  if (unit.ends_file) result.tokens.push_back(context.tokenizer.end_of_document());
  result.train_tokens = file_begin < context.val_begin ? result.tokens.size() : 0;
}

std::string text_of_line(const EncodeContext& context, std::string_view line,
                         const std::string& place) {
  Json row;
  try {
    row = parse_json(line, place);
  } catch (const Error& error) {
    fail(ExitCode::kDamaged, "data", "wanted one JSON object per line: ", error.what(),
         "; repair or remove the line");
  }
  const auto field = row.is_object() ? row.find(context.text_field) : row.end();
  if (!row.is_object() || field == row.end() || !field->is_string())
    fail(ExitCode::kDamaged, "data", place, ": wanted an object with the text field '",
         context.text_field, "', found ",
         !row.is_object()     ? std::string(row.type_name())
         : field == row.end() ? "no such field"
                              : "it to be " + std::string(field->type_name()),
         "; set text_field, or repair or remove the line");
  return std::move(field->get_ref<std::string&>());
}

void encode_jsonl(const EncodeContext& context, const Unit& unit, EncodedUnit& result) {
  const Source& source = context.sources[unit.start.file];
  const uint64_t unit_begin = context.begins[unit.start.file] + unit.start.offset;
  const std::string_view text = unit.text;
  uint64_t number = unit.start.line;
  for (size_t from = 0; from < text.size(); ++number) {
    const size_t newline = text.find('\n', from);
    const std::string_view line = text.substr(from, newline - from);
    const uint64_t begin = unit_begin + from;
    from = newline == std::string_view::npos ? text.size() : newline + 1;
    if (trim(line).empty()) continue;
    const std::string place = str(source.path.string(), ":", number);
    const size_t first = result.tokens.size();
    encode_at(context, text_of_line(context, line, place), place, result.tokens);
    if (result.tokens.size() == first) {
      ++result.empty_documents;
      continue;
    }
    result.documents.push_back(first);
    if (begin + line.size() >= context.last_end) {
      result.train_tokens +=
          tokens_before_cut(result.tokens.size() - first, begin, line.size(), context.val_begin);
    } else {
      result.tokens.push_back(context.tokenizer.end_of_document());
      if (begin < context.val_begin) result.train_tokens = result.tokens.size();
    }
  }
}

}  // namespace

EncodedUnit encode_unit(const EncodeContext& context, const Unit& unit) {
  EncodedUnit result;
  result.start = unit.start;
  result.text_bytes = unit.text.size();
  if (context.sources[unit.start.file].jsonl)
    encode_jsonl(context, unit, result);
  else
    encode_text(context, unit, result);
  return result;
}

struct OrderedEncoder::State {
  struct Slot {
    Unit unit;
    EncodedUnit result;
    std::exception_ptr error;
    bool done = false;
    uint64_t bytes = 0;
  };

  State(const EncodeContext& shared, UnitPosition start)
      : context(shared), reader(shared.sources, start) {}

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

OrderedEncoder::OrderedEncoder(const EncodeContext& context, UnitPosition start, int workers)
    : state_(std::make_unique<State>(context, start)) {
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
