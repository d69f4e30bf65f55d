#include "rendezvous/table.h"

#include <charconv>
#include <set>

#include "base/error.h"

namespace octavo::rendezvous {
namespace {

constexpr size_t kEntryOverhead = 128;  // of a node of the map, about

Reply refusal(std::string why) {
  return {Status::kRefused, 0, {std::move(why)}};
}

size_t cost_of(const std::string& key, const std::string& value) {
  return key.size() + value.size() + kEntryOverhead;
}

}  // namespace

bool Table::writes(Op op) {
  return op == Op::kSet || op == Op::kAdd || op == Op::kCompareSet || op == Op::kAppend ||
         op == Op::kMultiSet;
}

size_t Table::first_missing(const Request& request, size_t from) const {
  for (size_t i = from; i < request.keys.size(); ++i)
    if (!has(request.keys[i])) return i;
  // A value that was deleted meanwhile cannot be given: multi_get starts again.
  if (request.op == Op::kMultiGet && from > 0) return first_missing(request, 0);
  return kNone;
}

// Nothing when the value is in; otherwise why not.
std::optional<Reply> Table::put(const std::string& key, std::string value) {
  if (value.size() > kMaxValueBytes)
    return refusal(str("the value of '", key, "' would have ", value.size(), " bytes, at most ",
                       kMaxValueBytes, " are kept"));
  const auto entry = entries_.find(key);
  const size_t before = entry == entries_.end() ? 0 : cost_of(key, entry->second);
  const size_t after = cost_of(key, value);
  if (entry == entries_.end() && entries_.size() >= max_keys_)
    return refusal(str("the rendezvous is full: ", max_keys_, " keys"));
  if (bytes_ - before + after > max_bytes_)
    return refusal(str("the rendezvous is full: ", max_bytes_, " bytes"));
  bytes_ = bytes_ - before + after;
  if (entry == entries_.end())
    entries_.emplace(key, std::move(value));
  else
    entry->second = std::move(value);
  return std::nullopt;
}

void Table::erase(std::map<std::string, std::string>::iterator entry) {
  bytes_ -= cost_of(entry->first, entry->second);
  entries_.erase(entry);
}

Reply Table::answer_set(const Request& request) {
  for (size_t i = 0; i < request.keys.size(); ++i)
    if (auto refused = put(request.keys[i], request.values[i])) return *refused;
  return {};
}

Reply Table::answer_add(const Request& request) {
  int64_t value = 0;
  if (const auto entry = entries_.find(request.keys[0]); entry != entries_.end()) {
    const std::string& text = entry->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      return refusal(str("'", request.keys[0], "' holds no number, so nothing can be added"));
  }
  if (__builtin_add_overflow(value, request.number, &value))
    return refusal(str("the sum in '", request.keys[0], "' overflows"));
  if (auto refused = put(request.keys[0], std::to_string(value))) return *refused;
  return {Status::kOk, value, {}};
}

Reply Table::answer_compare_set(const Request& request) {
  const auto entry = entries_.find(request.keys[0]);
  const std::string& expected = request.values[0];
  const bool matches = entry == entries_.end() ? expected.empty() : entry->second == expected;
  if (!matches) return {Status::kOk, 0, {entry == entries_.end() ? expected : entry->second}};
  if (auto refused = put(request.keys[0], request.values[1])) return *refused;
  return {Status::kOk, 1, {request.values[1]}};
}

Reply Table::answer_append(const Request& request) {
  const auto entry = entries_.find(request.keys[0]);
  std::string value = entry == entries_.end() ? "" : entry->second;
  value += request.values[0];
  return put(request.keys[0], std::move(value)).value_or(Reply{});
}

Reply Table::answer_get(const Request& request) const {
  Reply reply;
  size_t total = 0;
  const std::string none;
  for (const std::string& key : request.keys) {
    const auto entry = entries_.find(key);
    OCTAVO_ASSERT(entry != entries_.end() || request.op == Op::kMultiTryGet);
    const std::string& value = entry == entries_.end() ? none : entry->second;
    total += value.size() + 4;
    if (total > kMaxFrameBytes - 64)
      return refusal(str("the values of ", request.keys.size(),
                         " keys are too much for one answer; ask for fewer"));
    reply.values.push_back(value);
  }
  return reply;
}

Reply Table::answer_missing(const Request& request) const {
  // By what is there: a range of a hundred thousand costs no more than the table's keys.
  const std::string& prefix = request.keys[0];
  std::set<int64_t> present;
  for (auto entry = entries_.lower_bound(prefix);
       entry != entries_.end() && entry->first.starts_with(prefix); ++entry) {
    const char *begin = entry->first.data() + prefix.size(),
               *end = entry->first.data() + entry->first.size();
    int64_t number = -1;
    const auto [stop, error] = std::from_chars(begin, end, number);
    // "07" is another key than "7".
    if (error == std::errc{} && stop == end && number >= 0 && number < request.number &&
        std::to_string(number).size() == static_cast<size_t>(end - begin))
      present.insert(number);
  }
  Reply reply;
  reply.number = request.number - static_cast<int64_t>(present.size());
  for (int64_t i = 0; i < request.number && reply.values.size() < kMaxMissingListed; ++i)
    if (!present.contains(i)) reply.values.push_back(std::to_string(i));
  return reply;
}

Reply Table::answer_delete(const Request& request) {
  const std::string& key = request.keys[0];
  Reply reply;
  for (auto entry = entries_.lower_bound(key); entry != entries_.end();) {
    if (request.op == Op::kDelete ? entry->first != key : !entry->first.starts_with(key)) break;
    const auto next = std::next(entry);
    erase(entry);
    entry = next;
    ++reply.number;
  }
  return reply;
}

Reply Table::answer(const Request& request) {
  switch (request.op) {
    case Op::kSet:
    case Op::kMultiSet:
      return answer_set(request);
    case Op::kAdd:
      return answer_add(request);
    case Op::kCompareSet:
      return answer_compare_set(request);
    case Op::kAppend:
      return answer_append(request);
    case Op::kDelete:
    case Op::kDeletePrefix:
      return answer_delete(request);
    case Op::kCheck:
      return {Status::kOk, first_missing(request, 0) == kNone ? 1 : 0, {}};
    case Op::kSize:
      return {Status::kOk, static_cast<int64_t>(entries_.size()), {}};
    case Op::kMissing:
      return answer_missing(request);
    case Op::kWait:
      return {};
    case Op::kGet:
    case Op::kMultiGet:
    case Op::kMultiTryGet:
      return answer_get(request);
  }
  return refusal("no such operation");
}

}  // namespace octavo::rendezvous
