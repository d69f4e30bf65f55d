#include "jinja/analyze.h"

#include "base/printable.h"
#include "jinja/filters.h"
#include "jinja/tests.h"

namespace octavo::jinja {
namespace {

using EKind = Expr::Kind;
using SKind = Stmt::Kind;

// Calls `action` for every child.
template <typename Node, typename Action>
void each_child(Node& node, const Action& action) {
  for (auto& operand : node.operands)
    if (operand) action(*operand);
  for (auto& argument : node.named) action(*argument.second);
  if (node.all_positional) action(*node.all_positional);
  if (node.all_named) action(*node.all_named);
}

void load_names(Scope& scope, const Expr& node) {
  if (node.kind == EKind::kName) scope.load(node.text);
  each_child(node, [&](const Expr& child) { load_names(scope, child); });
}

// The names that an assignment stores in. A namespace is read.
void store_names(Scope& scope, const Expr& target, bool as_parameter) {
  if (target.kind == EKind::kName) {
    if (as_parameter)
      scope.parameter(target.text);
    else
      scope.store(target.text);
  } else if (target.kind == EKind::kNamespaceRef) {
    scope.load(target.text);
  }
  for (const ExprPtr& item : target.operands) store_names(scope, *item, as_parameter);
}

// What a scope's own statements store and read, in their order; blocks inside have their own scope.
void collect(Scope& scope, const Body& body);

void collect_if(Scope& scope, const Stmt& statement, size_t from) {
  // An elif is an `if` in a branch of its own.
  load_names(scope, *statement.expressions[from]);
  Scope::Branches branches(scope);
  collect(scope, statement.bodies[from]);
  branches.next();
  if (from + 1 < statement.expressions.size()) {
    // All elifs are one branch after the other of the first `if`.
    for (size_t i = from + 1; i < statement.expressions.size(); ++i) {
      load_names(scope, *statement.expressions[i]);
      Scope::Branches inner(scope);
      collect(scope, statement.bodies[i]);
      inner.next();
      inner.finish();
    }
  }
  branches.next();
  if (statement.bodies.size() > statement.expressions.size())
    collect(scope, statement.bodies.back());
  branches.next();
  branches.finish();
}

void collect(Scope& scope, const Stmt& statement) {
  switch (statement.kind) {
    case SKind::kSet:
      load_names(scope, *statement.value);
      store_names(scope, *statement.target, false);
      break;
    case SKind::kSetBlock:
      store_names(scope, *statement.target, false);
      break;
    case SKind::kIf:
      collect_if(scope, statement, 0);
      break;
    case SKind::kMacro:
      scope.store(statement.signature.name);
      break;
    case SKind::kWith:
      for (const ExprPtr& value : statement.expressions) load_names(scope, *value);
      break;
    default:
      if (statement.value) load_names(scope, *statement.value);
  }
}

void collect(Scope& scope, const Body& body) {
  for (const Stmt& statement : body) collect(scope, statement);
}

// Which of some names are read before anything is stored in them, also in blocks inside: as Jinja
// looks for `loop`, `caller`, `kwargs` and `varargs`.
class Unstored {
 public:
  explicit Unstored(std::set<std::string> names) : names_(std::move(names)) {}
  void visit(const Body& body) {
    for (const Stmt& statement : body) visit(statement);
  }
  bool has(const std::string& name) const { return found_.contains(name); }

 private:
  void read(const Expr& node) {
    if (node.kind == EKind::kName) {
      if (names_.contains(node.text))
        found_.insert(node.text);
      else
        names_.erase(node.text);
    }
    each_child(node, [&](const Expr& child) { read(child); });
  }
  void stored(const Expr& target) {
    if (target.kind == EKind::kName) names_.erase(target.text);
    for (const ExprPtr& item : target.operands) stored(*item);
  }
  void visit(const Stmt& statement) {
    // In the order of Jinja's fields: target, then what is assigned.
    for (const ExprPtr& target : statement.targets) stored(*target);
    if (statement.kind == SKind::kCall && statement.value) read(*statement.value);
    if (statement.target) stored(*statement.target);
    if (statement.kind != SKind::kCall && statement.kind != SKind::kFilterBlock && statement.value)
      read(*statement.value);
    for (const std::string& name : statement.signature.parameters) names_.erase(name);
    for (const ExprPtr& value : statement.signature.defaults) read(*value);
    for (size_t i = 0; i < statement.bodies.size() || i < statement.expressions.size(); ++i) {
      if (i < statement.expressions.size()) read(*statement.expressions[i]);
      if (i < statement.bodies.size()) visit(statement.bodies[i]);
    }
    if (statement.test) read(*statement.test);
    if (statement.kind == SKind::kFilterBlock) read(*statement.value);
  }
  std::set<std::string> names_, found_;
};

bool stores_loop(const Body& body);
bool stores_loop(const Expr& target) {
  if (target.kind == EKind::kName && target.text == "loop") return true;
  for (const ExprPtr& item : target.operands)
    if (stores_loop(*item)) return true;
  return false;
}
bool stores_loop(const Stmt& statement) {
  if (statement.target && stores_loop(*statement.target)) return true;
  for (const Body& body : statement.bodies)
    if (stores_loop(body)) return true;
  return false;
}
bool stores_loop(const Body& body) {
  for (const Stmt& statement : body)
    if (stores_loop(statement)) return true;
  return false;
}

class Analysis {
 public:
  // `late`: in an `if`, where what is not there fails when it is used.
  void resolve(Scope& scope, Body& body, bool late) {
    for (Stmt& statement : body) resolve(scope, statement, late);
  }

 private:
  void resolve(Scope& scope, Expr& node, bool late) {
    if (node.kind == EKind::kName || node.kind == EKind::kNamespaceRef) {
      const auto found = scope.find(node.text);
      if (found) node.place = *found;
    }
    if (node.kind == EKind::kCond) late = true;
    node.checked_late = late;
    if (!late) check(node);
    each_child(node, [&](Expr& child) { resolve(scope, child, late); });
  }

  static void check(const Expr& node) {
    const bool is_filter = node.kind == EKind::kFilter;
    if (!is_filter && node.kind != EKind::kTest) return;
    if (is_filter ? find_filter(node.text) == nullptr : find_test(node.text) == nullptr)
      refuse("line ", node.line, ": there is no ", is_filter ? "filter" : "test", " named '",
             printable(node.text), "' here");
  }

  void resolve(Scope& scope, Stmt& statement, bool late) {
    switch (statement.kind) {
      case SKind::kIf:
        for (ExprPtr& condition : statement.expressions) resolve(scope, *condition, true);
        for (Body& body : statement.bodies) resolve(scope, body, true);
        break;
      case SKind::kFor:
        for_loop(scope, statement, late);
        break;
      case SKind::kMacro:
      case SKind::kCall:
      case SKind::kGeneration:
        if (statement.value) resolve(scope, *statement.value, late);
        function(scope, statement);
        break;
      case SKind::kSetBlock:
      case SKind::kFilterBlock:
        captured(scope, statement, late);
        break;
      case SKind::kWith:
        with(scope, statement, late);
        break;
      default:
        if (statement.value) resolve(scope, *statement.value, late);
        if (statement.target) resolve(scope, *statement.target, late);
    }
  }

  void for_loop(Scope& scope, Stmt& statement, bool late) {
    resolve(scope, *statement.value, late);
    if (stores_loop(statement))
      refuse("line ", statement.line, ": nothing can be assigned to `loop` in a loop");
    Unstored unstored({"loop"});
    unstored.visit(statement.bodies[0]);
    statement.has_loop_variable = unstored.has("loop");
    statement.scope = std::make_unique<Scope>(&scope);
    if (statement.has_loop_variable) statement.scope->parameter("loop");
    store_names(*statement.scope, *statement.target, true);
    collect(*statement.scope, statement.bodies[0]);
    resolve(*statement.scope, statement.bodies[0], false);
    if (statement.test) {
      statement.test_scope = std::make_unique<Scope>(&scope);
      store_names(*statement.test_scope, *statement.target, true);
      load_names(*statement.test_scope, *statement.test);
      resolve(*statement.test_scope, *statement.test, false);
    }
    if (statement.bodies.size() > 1) {
      statement.else_scope = std::make_unique<Scope>(&scope);
      collect(*statement.else_scope, statement.bodies[1]);
      resolve(*statement.else_scope, statement.bodies[1], false);
    }
  }

  void function(Scope& scope, Stmt& statement) {
    Signature& signature = statement.signature;
    statement.scope = std::make_unique<Scope>(&scope);
    Scope& inner = *statement.scope;
    const auto collect_all = [&] {
      for (const std::string& name : signature.parameters) inner.parameter(name);
      for (const ExprPtr& value : signature.defaults) load_names(inner, *value);
      collect(inner, statement.bodies[0]);
    };
    collect_all();
    Unstored unstored({"caller", "kwargs", "varargs"});
    unstored.visit(statement.bodies[0]);
    const auto& names = signature.parameters;
    const auto given = [&](const char* name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    signature.explicit_caller = given("caller");
    if (unstored.has("caller") && signature.explicit_caller) {
      const auto index =
          static_cast<size_t>(std::find(names.begin(), names.end(), "caller") - names.begin());
      if (index < names.size() - signature.defaults.size())
        refuse("line ", statement.line, ": the parameter `caller` wants a default");
    }
    signature.wants_caller = unstored.has("caller");
    signature.wants_named = unstored.has("kwargs") && !given("kwargs");
    signature.wants_positional = unstored.has("varargs") && !given("varargs");
    if (signature.wants_caller && !signature.explicit_caller) inner.parameter("caller");
    if (signature.wants_named) inner.parameter("kwargs");
    if (signature.wants_positional) inner.parameter("varargs");
    for (ExprPtr& value : signature.defaults) resolve(inner, *value, false);
    resolve(inner, statement.bodies[0], false);
  }

  // {% set %} and {% filter %} with a body.
  void captured(Scope& scope, Stmt& statement, bool late) {
    statement.scope = std::make_unique<Scope>(&scope);
    if (statement.value && statement.kind == SKind::kFilterBlock)
      load_names(*statement.scope, *statement.value);
    collect(*statement.scope, statement.bodies[0]);
    if (statement.target) resolve(scope, *statement.target, late);
    if (statement.value) resolve(*statement.scope, *statement.value, false);
    resolve(*statement.scope, statement.bodies[0], false);
  }

  void with(Scope& scope, Stmt& statement, bool late) {
    for (ExprPtr& value : statement.expressions) resolve(scope, *value, late);
    statement.scope = std::make_unique<Scope>(&scope);
    for (const ExprPtr& target : statement.targets) store_names(*statement.scope, *target, true);
    collect(*statement.scope, statement.bodies[0]);
    resolve(*statement.scope, statement.bodies[0], false);
  }
};

}  // namespace

void analyze(Tree& tree) {
  tree.scope = std::make_unique<Scope>();
  collect(*tree.scope, tree.body);
  Analysis().resolve(*tree.scope, tree.body, false);
}

}  // namespace octavo::jinja
