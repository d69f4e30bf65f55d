#pragma once
// Which variables a part of a template has, found before it runs, as Jinja finds them: whether a
// name is the part's own, of one around it or of the context depends on where it is stored and read
// and in which order, not on what has run.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace octavo::jinja {

// Where a variable is: in the frame that many levels further out, and there in which slot.
struct Place {
  int level = -1;  // -1: not resolved
  int slot = 0;
};

class Scope {
 public:
  // What a variable holds when its scope is entered.
  enum class Start { kParameter, kContext, kOuter, kMissing };
  struct Variable {
    std::string name;
    Start start = Start::kMissing;
    Place outer;  // of kOuter
  };

  explicit Scope(Scope* parent = nullptr) : parent_(parent) {}
  void store(const std::string& name);
  void load(const std::string& name);
  int parameter(const std::string& name);
  // What the branches of an `if` stored and read is the scope's, too.
  class Branches;

  std::optional<Place> find(const std::string& name) const;
  int slot(const std::string& name) const { return slots_.at(name); }
  const std::vector<Variable>& variables() const { return variables_; }

 private:
  int define(const std::string& name, Start start, Place outer = {});
  std::optional<Place> find_outside(const std::string& name) const;

  Scope* parent_;
  std::map<std::string, int> slots_;
  std::vector<Variable> variables_;
  std::set<std::string> stores_;
};

// One branch after the other begins with what was known before the `if`.
class Scope::Branches {
 public:
  explicit Branches(Scope& scope);
  void next();  // a branch was visited
  void finish();

 private:
  Scope& scope_;
  Scope before_;
  std::vector<Scope> visited_;
};

}  // namespace octavo::jinja
