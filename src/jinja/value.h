#pragma once
// The values of templates, as Python has them: shared, immutable but for namespaces.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "jinja/budget.h"

namespace octavo::jinja {

enum class Kind : uint8_t {
  kMissing,    // a variable that nothing was stored in: no value of a template
  kUndefined,  // Jinja's
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,
  kDict,
  kView,      // items(), keys() and values() of a dict
  kIterator,  // can be gone through once
  kNamespace,
  kCallable,
  kLoop,
};

class Value;
class Interpreter;

struct Object {
  virtual ~Object() = default;
};

class Value {
 public:
  Value() = default;  // undefined, without a reason
  static Value missing() { return Value(Kind::kMissing); }
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  static Value text(std::string value);
  static Value object(Kind kind, std::shared_ptr<Object> object);
  // `why` is the error of whoever uses it as if it were there.
  static Value undefined(std::string why);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_text() const { return kind_ == Kind::kString; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_sequence() const;  // list, tuple, range
  bool as_bool() const { return number_.integer != 0; }
  int64_t as_int() const { return number_.integer; }  // of a bool too
  double as_float() const;                            // of any number
  const std::string& as_text() const;
  const std::vector<Value>& items() const;  // of a sequence
  template <typename T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  const std::shared_ptr<Object>& shared() const { return object_; }
  // HTML that filters like `safe` have declared so: joined with + other text is escaped.
  bool is_markup() const { return markup_; }
  Value marked() const;
  std::string why_undefined() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Kind kind_ = Kind::kUndefined;
  bool markup_ = false;
  union {
    int64_t integer;
    double real;
  } number_ = {0};
  std::shared_ptr<Object> object_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct TextObject : Object {
  std::string text;
};

struct SequenceObject : Object {
  std::vector<Value> items;
  int depth = 1;
  int64_t start = 0, stop = 0, step = 1;  // of a range
};

// Keys in the order in which they came. Keys that are equal in Python (1, 1.0, True) are one.
class DictObject : public Object {
 public:
  const Value* find(Budget& budget, const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Budget& budget, const Value& key, Value value);
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  int depth = 1;

 private:
  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_map<std::string, size_t> by_text_;
};

struct ViewObject : Object {
  enum class What { kItems, kKeys, kValues } what = What::kItems;
  std::shared_ptr<DictObject> dict;
};

struct IteratorObject : Object {
  std::vector<Value> items;
  size_t next = 0;
  const char* type = "generator";
};

struct NamespaceObject : Object {
  DictObject attributes;
};

struct CallableObject : Object {
  virtual Value call(Interpreter& interpreter, Arguments& arguments) = 0;
  virtual std::string description() const = 0;  // as Python prints it; "" where it has an address
  virtual Value attribute(std::string_view) const { return Value::missing(); }
};

Value make_list(Budget& budget, std::vector<Value> items, Kind kind = Kind::kList);
Value make_iterator(Budget& budget, std::vector<Value> items, const char* type = "generator");
Value make_text(Budget& budget, std::string text);
Value make_range(Budget& budget, int64_t start, int64_t stop, int64_t step);
Value make_dict(std::shared_ptr<DictObject> dict);

using OrderedJson = nlohmann::ordered_json;
Value value_of(Budget& budget, const OrderedJson& json);

// Python's names: list, NoneType, …
std::string type_name(const Value& value);
bool truth(const Value& value);
// How many a value holds; none where Python's len() fails.
std::optional<size_t> length_of(const Value& value);
// What a for loop goes over; none where Python's iter() fails. An iterator is used up.
std::optional<std::vector<Value>> items_of(Budget& budget, const Value& value);
// As items_of, refused with a message where there are none.
std::vector<Value> iterate(Budget& budget, const Value& value);
bool is_iterable(const Value& value);
// Whether Python could hash it: a key of a dict.
bool is_hashable(const Value& value);

bool equals(Budget& budget, const Value& a, const Value& b);
bool identical(const Value& a, const Value& b);
// -1, 0, 1 and 2 for numbers without order; refused for types without order. `sign` is for the
// message.
int compare(Budget& budget, const Value& a, const Value& b, const char* sign);

std::string to_text(Budget& budget, const Value& value);  // Python's str()
std::string repr(Budget& budget, const Value& value);

}  // namespace octavo::jinja
