#include "jinja/value.h"

#include <algorithm>

#include "base/printable.h"
#include "jinja/python_text.h"

namespace octavo::jinja {
namespace {

constexpr int kMostNesting = 150;  // of lists and dicts: those who walk them call themselves

int depth_of(const Value& value) {
  if (value.is_sequence()) return value.as<SequenceObject>().depth;
  if (value.is(Kind::kDict)) return value.as<DictObject>().depth;
  return value.is(Kind::kView)       ? value.as<ViewObject>().dict->depth + 1
         : value.is(Kind::kIterator) ? 2
                                     : 0;
}

int depth_around(const std::vector<Value>& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, depth_of(item));
  if (deepest >= kMostNesting)
    refuse("wanted lists and dicts nested at most ", kMostNesting, " deep, found deeper ones");
  return deepest + 1;
}

Value object_of(Budget& budget, const OrderedJson& json) {
  auto dict = std::make_shared<DictObject>();
  for (const auto& [key, value] : json.items())
    dict->set(budget, make_text(budget, key), value_of(budget, value));
  return make_dict(std::move(dict));
}

}  // namespace

Value Value::boolean(bool value) {
  Value out(Kind::kBool);
  out.number_.integer = value ? 1 : 0;
  return out;
}

Value Value::integer(int64_t value) {
  Value out(Kind::kInt);
  out.number_.integer = value;
  return out;
}

Value Value::real(double value) {
  Value out(Kind::kFloat);
  out.number_.real = value;
  return out;
}

Value Value::text(std::string value) {
  auto made = std::make_shared<TextObject>();
  made->text = std::move(value);
  return object(Kind::kString, std::move(made));
}

Value Value::object(Kind kind, std::shared_ptr<Object> object) {
  Value out(kind);
  out.object_ = std::move(object);
  return out;
}

Value Value::undefined(std::string why) {
  Value out = text(std::move(why));
  out.kind_ = Kind::kUndefined;
  return out;
}

bool Value::is_sequence() const {
  return kind_ == Kind::kList || kind_ == Kind::kTuple || kind_ == Kind::kRange;
}

double Value::as_float() const {
  return kind_ == Kind::kFloat ? number_.real : static_cast<double>(number_.integer);
}

const std::string& Value::as_text() const {
  return as<TextObject>().text;
}

const std::vector<Value>& Value::items() const {
  return as<SequenceObject>().items;
}

Value Value::marked() const {
  Value out = *this;
  out.markup_ = true;
  return out;
}

std::string Value::why_undefined() const {
  return object_ ? as_text() : "the value is undefined";
}

const Value* DictObject::find(Budget& budget, const Value& key) const {
  if (key.is_text()) return find(key.as_text());
  for (const auto& [name, value] : entries_)
    if (!name.is_text() && equals(budget, name, key)) return &value;
  return nullptr;
}

const Value* DictObject::find(std::string_view key) const {
  const auto found = by_text_.find(std::string(key));
  return found == by_text_.end() ? nullptr : &entries_[found->second].second;
}

void DictObject::set(Budget& budget, const Value& key, Value value) {
  depth = std::max(depth, 1 + std::max(depth_of(value), depth_of(key)));
  if (depth > kMostNesting)
    refuse("wanted lists and dicts nested at most ", kMostNesting, " deep, found deeper ones");
  if (const Value* old = find(budget, key)) {
    const_cast<Value&>(*old) = std::move(value);
    return;
  }
  budget.make_items(3);
  if (key.is_text()) by_text_.emplace(key.as_text(), entries_.size());
  entries_.emplace_back(key, std::move(value));
}

Value make_list(Budget& budget, std::vector<Value> items, Kind kind) {
  budget.make_items(items.size() + 1);
  auto made = std::make_shared<SequenceObject>();
  made->depth = depth_around(items);
  made->items = std::move(items);
  return Value::object(kind, std::move(made));
}

Value make_iterator(Budget& budget, std::vector<Value> items, const char* type) {
  budget.make_items(items.size() + 1);
  depth_around(items);
  auto made = std::make_shared<IteratorObject>();
  made->items = std::move(items);
  made->type = type;
  return Value::object(Kind::kIterator, std::move(made));
}

Value make_text(Budget& budget, std::string text) {
  budget.make(text.size() + 32);
  return Value::text(std::move(text));
}

Value make_range(Budget& budget, int64_t start, int64_t stop, int64_t step) {
  constexpr int64_t kMostItems = 100'000;  // as Jinja's sandbox
  if (step == 0) refuse("range() wants a step that is not 0");
  const auto span =
      step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 size = step > 0 ? step : -static_cast<__int128>(step);
  const __int128 count = span <= 0 ? 0 : (span + size - 1) / size;
  if (count > kMostItems) refuse("range() wants at most ", kMostItems, " items");
  budget.make_items(static_cast<uint64_t>(count));
  auto made = std::make_shared<SequenceObject>();
  made->start = start;
  made->stop = stop;
  made->step = step;
  for (__int128 i = 0; i < count; ++i)
    made->items.push_back(Value::integer(static_cast<int64_t>(start + i * step)));
  return Value::object(Kind::kRange, std::move(made));
}

Value make_dict(std::shared_ptr<DictObject> dict) {
  return Value::object(Kind::kDict, std::move(dict));
}

Value value_of(Budget& budget, const OrderedJson& json) {
  switch (json.type()) {
    case OrderedJson::value_t::null:
      return Value::none();
    case OrderedJson::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
        refuse("wanted integers of 64 bits, found ", json.get<uint64_t>());
      return Value::integer(json.get<int64_t>());
    case OrderedJson::value_t::number_float:
      return Value::real(json.get<double>());
    case OrderedJson::value_t::string:
      return make_text(budget, json.get<std::string>());
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      for (const OrderedJson& item : json) items.push_back(value_of(budget, item));
      return make_list(budget, std::move(items));
    }
    case OrderedJson::value_t::object:
      return object_of(budget, json);
    default:
      refuse("wanted JSON, found bytes");
  }
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.is_markup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kRange:
      return "range";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
      return "dict view";
    case Kind::kIterator:
      return value.as<IteratorObject>().type;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kCallable:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "";
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_float() != 0;
    case Kind::kString:
      return !value.as_text().empty();
    default: {
      const auto length = length_of(value);
      return !length || *length > 0;
    }
  }
}

std::optional<size_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return length_in_points(value.as_text());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return value.items().size();
    case Kind::kDict:
      return value.as<DictObject>().entries().size();
    case Kind::kView:
      return value.as<ViewObject>().dict->entries().size();
    default:
      return std::nullopt;
  }
}

bool is_iterable(const Value& value) {
  return value.is(Kind::kIterator) || value.is(Kind::kLoop) || length_of(value).has_value();
}

bool is_hashable(const Value& value) {
  if (value.is(Kind::kTuple))
    return std::all_of(value.items().begin(), value.items().end(), is_hashable);
  return !value.is(Kind::kList) && !value.is(Kind::kDict) && !value.is(Kind::kView);
}

std::optional<std::vector<Value>> items_of(Budget& budget, const Value& value) {
  std::vector<Value> out;
  switch (value.kind()) {
    case Kind::kUndefined:
      return out;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      budget.make_items(value.items().size());
      return value.items();
    case Kind::kString:
      budget.make_items(value.as_text().size() * 3);
      for (const char32_t point : code_points(value.as_text()))
        out.push_back(Value::text(to_utf8({&point, 1})));
      return out;
    case Kind::kDict:
      for (const auto& entry : value.as<DictObject>().entries()) out.push_back(entry.first);
      budget.make_items(out.size());
      return out;
    case Kind::kView: {
      const auto& view = value.as<ViewObject>();
      for (const auto& [key, held] : view.dict->entries())
        out.push_back(view.what == ViewObject::What::kKeys ? key
                      : view.what == ViewObject::What::kValues
                          ? held
                          : make_list(budget, {key, held}, Kind::kTuple));
      budget.make_items(out.size());
      return out;
    }
    case Kind::kIterator: {
      auto& iterator = value.as<IteratorObject>();
      budget.make_items(iterator.items.size() - iterator.next);
      out.assign(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next),
                 iterator.items.end());
      iterator.next = iterator.items.size();
      return out;
    }
    default:
      return std::nullopt;
  }
}

std::vector<Value> iterate(Budget& budget, const Value& value) {
  if (value.is(Kind::kLoop)) refuse("going through `loop` itself is not supported");
  auto items = items_of(budget, value);
  if (!items) refuse("wanted something to go through, found ", type_name(value));
  return std::move(*items);
}

}  // namespace octavo::jinja
