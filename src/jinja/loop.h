#pragma once
// What a for loop goes over, and its variable `loop`.

#include <functional>
#include <optional>

#include "jinja/value.h"

namespace octavo::jinja {

// Items one by one; those of a filtered loop are judged when they are asked for.
class LoopSource {
 public:
  using Accept = std::function<bool(const Value&)>;
  LoopSource(Budget& budget, const Value& over, Accept accept);
  std::optional<Value> next();
  std::optional<size_t> known_length() const;  // of what has one
  bool is_filtered() const { return static_cast<bool>(accept_); }

 private:
  Value over_;
  std::vector<Value> items_;
  size_t at_ = 0;
  Accept accept_;
};

class LoopObject : public Object {
 public:
  explicit LoopObject(LoopSource source) : source_(std::move(source)) {}
  bool advance(Budget& budget);
  const Value& current() const { return current_; }
  // index, first, previtem, …; missing for a name that loops do not have.
  Value attribute(const std::string& name, const std::shared_ptr<Object>& self);
  Value cycle(const Arguments& arguments) const;
  bool changed(Budget& budget, const Arguments& arguments);
  void forget() { last_changed_.reset(); }

 private:
  bool has_next();
  int64_t length();

  LoopSource source_;
  std::optional<Value> ahead_;
  std::vector<Value> rest_;  // read to count them
  size_t rest_at_ = 0;
  bool rest_is_read_ = false;
  std::optional<int64_t> length_;
  Value current_ = Value::missing(), before_ = Value::missing();
  int64_t index0_ = -1;
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace octavo::jinja
