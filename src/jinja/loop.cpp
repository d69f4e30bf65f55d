#include "jinja/loop.h"

#include "jinja/function.h"
#include "jinja/interpreter.h"

namespace octavo::jinja {

LoopSource::LoopSource(Budget& budget, const Value& over, Accept accept)
    : over_(over), accept_(std::move(accept)) {
  if (over.is(Kind::kIterator)) return;  // used up item by item
  items_ = iterate(budget, over);
}

std::optional<Value> LoopSource::next() {
  while (true) {
    Value item;
    if (over_.is(Kind::kIterator)) {
      auto& iterator = over_.as<IteratorObject>();
      if (iterator.next == iterator.items.size()) return std::nullopt;
      item = iterator.items[iterator.next++];
    } else {
      if (at_ == items_.size()) return std::nullopt;
      item = items_[at_++];
    }
    if (!accept_ || accept_(item)) return item;
  }
}

std::optional<size_t> LoopSource::known_length() const {
  return accept_ ? std::nullopt : length_of(over_);
}

bool LoopObject::advance(Budget& budget) {
  budget.step();
  std::optional<Value> next;
  if (rest_is_read_ && !ahead_) {
    if (rest_at_ < rest_.size()) next = rest_[rest_at_++];
  } else if (ahead_) {
    next = std::exchange(ahead_, std::nullopt);
  } else {
    next = source_.next();
  }
  if (!next) return false;
  before_ = std::exchange(current_, *next);
  ++index0_;
  return true;
}

bool LoopObject::has_next() {
  if (ahead_) return true;
  if (rest_is_read_) return rest_at_ < rest_.size();
  ahead_ = source_.next();
  return ahead_.has_value();
}

int64_t LoopObject::length() {
  if (!length_) {
    if (const auto known = source_.known_length()) {
      length_ = static_cast<int64_t>(*known);
    } else {
      while (auto next = source_.next()) rest_.push_back(std::move(*next));
      rest_is_read_ = true;
      length_ = static_cast<int64_t>(rest_.size()) + index0_ + 1 + (ahead_ ? 1 : 0);
    }
  }
  return *length_;
}

Value LoopObject::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) refuse("loop.cycle wants values");
  return arguments.positional[static_cast<size_t>(index0_) % arguments.positional.size()];
}

bool LoopObject::changed(Budget& budget, const Arguments& arguments) {
  const auto& values = arguments.positional;
  bool same = last_changed_ && last_changed_->size() == values.size();
  for (size_t i = 0; same && i < values.size(); ++i)
    same = equals(budget, values[i], (*last_changed_)[i]);
  if (!same) last_changed_ = values;
  return !same;
}

Value LoopObject::attribute(const std::string& name, const std::shared_ptr<Object>& self) {
  const auto peek = [&]() -> const Value& { return ahead_ ? *ahead_ : rest_[rest_at_]; };
  if (name == "index") return Value::integer(index0_ + 1);
  if (name == "index0") return Value::integer(index0_);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "last") return Value::boolean(!has_next());
  if (name == "length") return Value::integer(length());
  if (name == "revindex") return Value::integer(length() - index0_);
  if (name == "revindex0") return Value::integer(length() - index0_ - 1);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem")
    return index0_ == 0 ? Value::undefined("there is no previous item") : before_;
  if (name == "nextitem") return has_next() ? peek() : Value::undefined("there is no next item");
  if (name != "cycle" && name != "changed") return Value::missing();
  const bool cycles = name == "cycle";
  return function_value([self, cycles](Interpreter& running, Arguments& arguments) {
    auto& loop = static_cast<LoopObject&>(*self);
    if (!arguments.named.empty())
      refuse("loop.", cycles ? "cycle" : "changed", " has no named arguments");
    if (cycles) return loop.cycle(arguments);
    running.at_the_end([self] { static_cast<LoopObject&>(*self).forget(); });
    return Value::boolean(loop.changed(running.budget(), arguments));
  });
}

}  // namespace octavo::jinja
