#include "jinja/scope.h"

#include "jinja/budget.h"

namespace octavo::jinja {

std::optional<Place> Scope::find(const std::string& name) const {
  int level = 0;
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_, ++level)
    if (const auto found = scope->slots_.find(name); found != scope->slots_.end())
      return Place{level, found->second};
  return std::nullopt;
}

std::optional<Place> Scope::find_outside(const std::string& name) const {
  if (parent_ == nullptr) return std::nullopt;
  auto found = parent_->find(name);
  if (found) ++found->level;
  return found;
}

int Scope::define(const std::string& name, Start start, Place outer) {
  const auto [at, is_new] = slots_.emplace(name, static_cast<int>(variables_.size()));
  constexpr size_t kMostVariables = 500;  // branches copy them
  if (is_new && variables_.size() == kMostVariables)
    refuse("wanted at most ", kMostVariables, " variables in a part of a template, found more");
  if (is_new) variables_.emplace_back();
  variables_[static_cast<size_t>(at->second)] = {name, start, outer};
  return at->second;
}

void Scope::store(const std::string& name) {
  stores_.insert(name);
  if (slots_.contains(name)) return;
  if (const auto outer = find_outside(name))
    define(name, Start::kOuter, *outer);
  else
    define(name, Start::kMissing);
}

void Scope::load(const std::string& name) {
  if (!find(name)) define(name, Start::kContext);
}

int Scope::parameter(const std::string& name) {
  stores_.insert(name);
  return define(name, Start::kParameter);
}

Scope::Branches::Branches(Scope& scope) : scope_(scope), before_(scope) {}

void Scope::Branches::next() {
  visited_.push_back(scope_);
  scope_ = before_;
}

void Scope::Branches::finish() {
  std::set<std::string> stored;
  for (const Scope& branch : visited_) {
    stored.insert(branch.stores_.begin(), branch.stores_.end());
    for (const Variable& variable : branch.variables_)
      scope_.define(variable.name, variable.start, variable.outer);
  }
  for (const std::string& name : before_.stores_) stored.erase(name);
  for (const Scope& branch : visited_)
    scope_.stores_.insert(branch.stores_.begin(), branch.stores_.end());
  // A branch may not run: then the variable is what it was outside.
  for (const std::string& name : stored) {
    const auto outer = scope_.find_outside(name);
    scope_.define(name, outer ? Start::kOuter : Start::kContext, outer.value_or(Place{}));
  }
}

}  // namespace octavo::jinja
