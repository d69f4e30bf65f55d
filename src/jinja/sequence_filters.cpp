// Filters of lists and dicts as a whole.
#include <algorithm>

#include "base/text.h"
#include "jinja/filters.h"
#include "jinja/operators.h"
#include "jinja/python_text.h"

namespace octavo::jinja {
namespace {

bool is_set(const Value& value) {
  return !value.is(Kind::kMissing) && truth(value);
}

Value path_or_none(const Value& value) {
  return value.is(Kind::kMissing) ? Value::none() : value;
}

// What filters compare: the item or what `path` reads of it, texts without regard to case.
Value key_of(Interpreter& run, const Value& item, const Value& path, bool case_sensitive,
             const Value& otherwise = Value::missing()) {
  const Value key = path.is(Kind::kNone) ? item : read_path(run, item, path, otherwise);
  if (case_sensitive || !key.is_text()) return key;
  run.budget().make(key.as_text().size() * 4);
  return run.text(lower(key.as_text()));
}

Value length_filter(Interpreter&, const Value& input, Arguments& arguments) {
  bind_arguments("length", arguments, {});
  if (input.is(Kind::kLoop)) refuse("`loop` as a list is not supported; use loop.length");
  const auto length = length_of(input);
  if (!length) refuse("wanted something that has a length, found ", type_name(input));
  return Value::integer(static_cast<int64_t>(*length));
}

Value list_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  bind_arguments("list", arguments, {});
  return make_list(run.budget(), iterate(run.budget(), input));
}

Value first_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  bind_arguments("first", arguments, {});
  if (input.is(Kind::kIterator)) {
    auto& iterator = input.as<IteratorObject>();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    return Value::undefined("No first item, sequence was empty.");
  }
  const auto items = iterate(run.budget(), input);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value last_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  bind_arguments("last", arguments, {});
  if (input.is(Kind::kIterator))
    refuse("last is not for ", type_name(input), "; |list makes a list of it");
  const auto items = iterate(run.budget(), input);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  bind_arguments("reverse", arguments, {});
  if (input.is_text()) {
    if (input.is_markup()) refuse("reverse of text that is marked as safe is not supported");
    return slice(run.budget(), input, Value::none(), Value::none(), Value::integer(-1));
  }
  if (!is_iterable(input)) refuse("reverse is not for ", type_name(input));
  auto items = iterate(run.budget(), input);
  std::reverse(items.begin(), items.end());
  if (input.is(Kind::kIterator)) return make_list(run.budget(), std::move(items));
  return make_iterator(run.budget(), std::move(items), "reversed");
}

Value items_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  bind_arguments("items", arguments, {});
  if (input.is(Kind::kUndefined)) return make_iterator(run.budget(), {});
  if (!input.is(Kind::kDict)) refuse("items wants a dict, found ", type_name(input));
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.as<DictObject>().entries())
    pairs.push_back(make_list(run.budget(), {key, value}, Kind::kTuple));
  return make_iterator(run.budget(), std::move(pairs));
}

struct Keyed {
  Value key, item;
};

std::vector<Value> sorted(Interpreter& run, std::vector<Keyed> pairs, bool reverse) {
  run.budget().step(pairs.size());
  std::stable_sort(pairs.begin(), pairs.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? compare(run.budget(), b.key, a.key, "<") == -1
                   : compare(run.budget(), a.key, b.key, "<") == -1;
  });
  std::vector<Value> items;
  for (Keyed& pair : pairs) items.push_back(std::move(pair.item));
  return items;
}

Value sort_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const Value path = path_or_none(bound[2]);
  std::vector<Value> paths{path};
  if (path.is_text()) {
    paths.clear();
    for (const std::string& part : split(path.as_text(), ',')) paths.push_back(Value::text(part));
  }
  std::vector<Keyed> pairs;
  for (const Value& item : iterate(run.budget(), input)) {
    std::vector<Value> keys;
    for (const Value& one : paths) keys.push_back(key_of(run, item, one, is_set(bound[1])));
    pairs.push_back({make_list(run.budget(), std::move(keys)), item});
  }
  return make_list(run.budget(), sorted(run, std::move(pairs), is_set(bound[0])));
}

Value dictsort_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound[1].is(Kind::kMissing) ? "key"
                         : bound[1].is_text()        ? bound[1].as_text()
                                                     : "";
  if (by != "key" && by != "value") refuse("dictsort sorts by key or value");
  if (input.is(Kind::kUndefined)) refuse(input.why_undefined());
  if (!input.is(Kind::kDict)) refuse("dictsort wants a dict, found ", type_name(input));
  std::vector<Keyed> pairs;
  for (const auto& [key, value] : input.as<DictObject>().entries())
    pairs.push_back({key_of(run, by == "key" ? key : value, Value::none(), is_set(bound[0])),
                     make_list(run.budget(), {key, value}, Kind::kTuple)});
  return make_list(run.budget(), sorted(run, std::move(pairs), is_set(bound[2])));
}

Value unique_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("unique", arguments, {"case_sensitive", "attribute"});
  DictObject seen;
  std::vector<Value> items;
  for (const Value& item : iterate(run.budget(), input)) {
    const Value key = key_of(run, item, path_or_none(bound[1]), is_set(bound[0]));
    if (!is_hashable(key)) refuse("unique wants values that can be keys, found ", type_name(key));
    if (seen.find(run.budget(), key) != nullptr) continue;
    seen.set(run.budget(), key, Value::none());
    items.push_back(item);
  }
  return make_iterator(run.budget(), std::move(items));
}

template <int sign>
Value extreme_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound =
      bind_arguments(sign < 0 ? "min" : "max", arguments, {"case_sensitive", "attribute"});
  const auto items = iterate(run.budget(), input);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key = [&](const Value& item) {
    return key_of(run, item, path_or_none(bound[1]), is_set(bound[0]));
  };
  Value best = items[0], best_key = key(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    Value other = key(items[i]);
    if (compare(run.budget(), other, best_key, "<") != sign) continue;
    best = items[i];
    best_key = std::move(other);
  }
  return best;
}

Value sum_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("sum", arguments, {"attribute", "start"});
  Value total = bound[1].is(Kind::kMissing) ? Value::integer(0) : bound[1];
  if (total.is_text()) refuse("sum is not for text; use join");
  const bool by_path = !bound[0].is(Kind::kMissing) && !bound[0].is(Kind::kNone);
  for (const Value& item : iterate(run.budget(), input))
    total = binary(run.budget(), Operator::kAdd, total,
                   by_path ? read_path(run, item, bound[0], Value::missing()) : item);
  return total;
}

int64_t count_argument(const Value& value, const char* filter) {
  if (!value.is_integral()) refuse(filter, " wants an integer, found ", type_name(value));
  return value.as_int();
}

Value batch_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = count_argument(bound[0], "batch");
  if (size < 1) refuse("batch wants a count of at least 1");
  std::vector<Value> batches, batch;
  for (const Value& item : iterate(run.budget(), input)) {
    if (static_cast<int64_t>(batch.size()) == size)
      batches.push_back(make_list(run.budget(), std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (!bound[1].is(Kind::kMissing) && !bound[1].is(Kind::kNone) &&
        static_cast<int64_t>(batch.size()) < size) {
      run.budget().make_items(static_cast<uint64_t>(size));
      batch.resize(static_cast<size_t>(size), bound[1]);
    }
    batches.push_back(make_list(run.budget(), std::move(batch)));
  }
  return make_iterator(run.budget(), std::move(batches));
}

Value slice_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("slice", arguments, {"slices", "fill_with"}, 1);
  const int64_t count = count_argument(bound[0], "slice");
  if (count < 1) refuse("slice wants a count of at least 1");
  run.budget().make_items(static_cast<uint64_t>(count));
  const auto items = iterate(run.budget(), input);
  const auto each = static_cast<int64_t>(items.size()) / count,
             longer = static_cast<int64_t>(items.size()) % count;
  std::vector<Value> slices;
  auto at = items.begin();
  for (int64_t i = 0; i < count; ++i) {
    const auto end = at + each + (i < longer ? 1 : 0);
    std::vector<Value> one(at, end);
    if (!bound[1].is(Kind::kMissing) && !bound[1].is(Kind::kNone) && i >= longer)
      one.push_back(bound[1]);
    slices.push_back(make_list(run.budget(), std::move(one)));
    at = end;
  }
  return make_iterator(run.budget(), std::move(slices));
}

constexpr Filter kSequenceFilters[] = {
    {"length", length_filter}, {"count", length_filter},    {"list", list_filter},
    {"first", first_filter},   {"last", last_filter},       {"reverse", reverse_filter},
    {"items", items_filter},   {"sort", sort_filter},       {"dictsort", dictsort_filter},
    {"unique", unique_filter}, {"min", extreme_filter<-1>}, {"max", extreme_filter<1>},
    {"sum", sum_filter},       {"batch", batch_filter},     {"slice", slice_filter},
};

}  // namespace

const Filter* find_sequence_filter(std::string_view name) {
  for (const Filter& filter : kSequenceFilters)
    if (filter.name == name) return &filter;
  return nullptr;
}

}  // namespace octavo::jinja
