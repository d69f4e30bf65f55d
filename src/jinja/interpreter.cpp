#include "jinja/interpreter.h"

#include <utility>

#include "base/printable.h"
#include "jinja/filters.h"
#include "jinja/loop.h"
#include "jinja/macro.h"
#include "jinja/operators.h"
#include "jinja/python_text.h"

namespace octavo::jinja {

namespace {

// Made of literals alone.
bool is_constant(const Expr& node) {
  if (node.kind == Expr::Kind::kName || node.kind == Expr::Kind::kCall) return false;
  for (const ExprPtr& operand : node.operands)
    if (operand && !is_constant(*operand)) return false;
  for (const auto& argument : node.named)
    if (!is_constant(*argument.second)) return false;
  return !node.all_positional && !node.all_named;
}

}  // namespace

class Interpreter::Deeper {
 public:
  explicit Deeper(Interpreter& interpreter) : depth_(interpreter.depth_) {
    if (++depth_ > interpreter.budget_.limits().depth)
      refuse("wanted a template whose parts call each other at most ",
             interpreter.budget_.limits().depth, " deep, found one that goes on");
    interpreter.budget_.step();
  }
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  int& depth_;
};

Interpreter::~Interpreter() {
  for (const auto& end : endings_) end();
  for (const FramePtr& frame : kept_) frame->slots.clear();
}

std::string Interpreter::run(const Tree& tree, const OrderedJson& context) {
  add_globals(*this, globals_);
  for (const auto& [name, value] : context.items())
    context_.set(budget_, make_text(budget_, name), value_of(budget_, value));
  const FramePtr root = new_frame(*tree.scope, nullptr);
  enter(*root);
  run(tree.body, root);
  return std::move(output_);
}

const Value* Interpreter::context_value(const std::string& name) const {
  const Value* found = context_.find(name);
  return found != nullptr ? found : globals_.find(name);
}

Value Interpreter::new_namespace(std::shared_ptr<NamespaceObject> made) {
  budget_.make_items(8);
  at_the_end([made] { made->attributes = {}; });
  return Value::object(Kind::kNamespace, std::move(made));
}

FramePtr Interpreter::new_frame(const Scope& scope, const FramePtr& parent) {
  budget_.step(1 + scope.variables().size() / 4);
  auto frame = std::make_shared<Frame>();
  frame->scope = &scope;
  frame->parent = parent;
  frame->slots.assign(scope.variables().size(), Value::missing());
  return frame;
}

void Interpreter::enter(Frame& frame) {
  const auto& variables = frame.scope->variables();
  budget_.step(1 + variables.size() / 4);
  for (size_t i = 0; i < variables.size(); ++i) {
    const Scope::Variable& variable = variables[i];
    switch (variable.start) {
      case Scope::Start::kParameter:
        break;
      case Scope::Start::kMissing:
        frame.slots[i] = Value::missing();
        break;
      case Scope::Start::kOuter:
        frame.slots[i] = this->variable(frame, variable.outer);
        break;
      case Scope::Start::kContext: {
        const Value* found = context_value(variable.name);
        frame.slots[i] = found != nullptr ? *found : Value::missing();
        break;
      }
    }
  }
}

void Interpreter::leave(Frame& frame) {
  if (frame.is_kept) frame.slots.assign(frame.slots.size(), Value::missing());
}

void Interpreter::keep(const FramePtr& frame) {
  for (FramePtr at = frame; at && !at->is_kept; at = at->parent) {
    at->is_kept = true;
    budget_.make_items(at->slots.size() + 4);
    kept_.push_back(at);
  }
}

Value Interpreter::variable(const Frame& frame, Place place) const {
  const Frame* at = &frame;
  for (int i = 0; i < place.level; ++i) at = at->parent.get();
  return at->slots[static_cast<size_t>(place.slot)];
}

void Interpreter::write(std::string_view text) {
  if (out_ == &output_) {
    if (text.size() > budget_.limits().output_bytes - output_.size())
      refuse("wanted at most ", budget_.limits().output_bytes, " bytes of output, found more");
    budget_.step(text.size() / 256);
  } else {
    budget_.make(text.size());
  }
  *out_ += text;
}

// Of blocks Jinja writes what they give as it is, so it must be text.
void Interpreter::write_text(const Value& value, int line) {
  if (!value.is_text()) refuse("line ", line, ": wanted text to write, found ", type_name(value));
  write(value.as_text());
}

Interpreter::Flow Interpreter::run(const Body& body, const FramePtr& frame) {
  for (const Stmt& statement : body)
    if (const Flow flow = run(statement, frame); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const Stmt& statement, const FramePtr& frame) {
  const Deeper deeper(*this);
  switch (statement.kind) {
    case Stmt::Kind::kData:
      write(statement.text);
      break;
    case Stmt::Kind::kPrint: {
      const Value value = evaluate(*statement.value, frame);
      if (value.is_text())
        write(value.as_text());
      else
        write(to_text(budget_, value));
      break;
    }
    case Stmt::Kind::kSet:
      assign(*statement.target, evaluate(*statement.value, frame), frame);
      break;
    case Stmt::Kind::kSetBlock:
    case Stmt::Kind::kFilterBlock:
      return run_captured(statement, frame);
    case Stmt::Kind::kIf:
      return run_if(statement, frame);
    case Stmt::Kind::kFor:
      return run_for(statement, frame);
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
    case Stmt::Kind::kMacro:
      keep(frame);
      frame->slots[static_cast<size_t>(frame->scope->slot(statement.signature.name))] =
          macro_value(statement, frame);
      break;
    case Stmt::Kind::kCall:
      run_call(statement, frame);
      break;
    case Stmt::Kind::kWith:
      return run_with(statement, frame);
    case Stmt::Kind::kGeneration:
      run_generation(statement, frame);
      break;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_if(const Stmt& statement, const FramePtr& frame) {
  for (size_t i = 0; i < statement.expressions.size(); ++i)
    if (truth(evaluate(*statement.expressions[i], frame))) return run(statement.bodies[i], frame);
  if (statement.bodies.size() > statement.expressions.size())
    return run(statement.bodies.back(), frame);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_for(const Stmt& statement, const FramePtr& frame) {
  const Value over = evaluate(*statement.value, frame);
  LoopSource::Accept accept;
  if (statement.test) {
    const FramePtr test_frame = new_frame(*statement.test_scope, frame);
    enter(*test_frame);
    accept = [this, &statement, test_frame](const Value& item) {
      assign(*statement.target, item, test_frame);
      return truth(evaluate(*statement.test, test_frame));
    };
  }
  const FramePtr inner = new_frame(*statement.scope, frame);
  auto loop = std::make_shared<LoopObject>(LoopSource(budget_, over, std::move(accept)));
  if (statement.has_loop_variable)
    inner->slots[static_cast<size_t>(inner->scope->slot("loop"))] =
        Value::object(Kind::kLoop, loop);
  bool any = false;
  while (loop->advance(budget_)) {
    budget_.step();
    assign(*statement.target, loop->current(), inner);
    enter(*inner);
    const Flow flow = run(statement.bodies[0], inner);
    any |= flow == Flow::kNext;  // Jinja notes it at the end of the body
    if (flow == Flow::kBreak) break;
  }
  leave(*inner);
  if (any || statement.bodies.size() < 2) return Flow::kNext;
  const FramePtr other = new_frame(*statement.else_scope, frame);
  enter(*other);
  const Flow flow = run(statement.bodies[1], other);
  leave(*other);
  return flow;
}

Interpreter::Flow Interpreter::run_captured(const Stmt& statement, const FramePtr& frame) {
  const FramePtr inner = new_frame(*statement.scope, frame);
  enter(*inner);
  std::string captured;
  std::string* const before = std::exchange(out_, &captured);
  const Flow flow = run(statement.bodies[0], inner);
  out_ = before;
  if (flow != Flow::kNext) return flow;
  Value result;
  if (statement.value) {
    std::string* const input = std::exchange(filter_input_, &captured);
    result = evaluate(*statement.value, inner);
    filter_input_ = input;
  } else {
    result = make_text(budget_, std::move(captured));
  }
  leave(*inner);
  if (statement.kind == Stmt::Kind::kSetBlock)
    assign(*statement.target, result, frame);
  else
    write_text(result, statement.line);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_with(const Stmt& statement, const FramePtr& frame) {
  const FramePtr inner = new_frame(*statement.scope, frame);
  enter(*inner);
  for (size_t i = 0; i < statement.targets.size(); ++i)
    assign(*statement.targets[i], evaluate(*statement.expressions[i], frame), inner);
  const Flow flow = run(statement.bodies[0], inner);
  leave(*inner);
  return flow;
}

void Interpreter::run_call(const Stmt& statement, const FramePtr& frame) {
  keep(frame);
  const Value caller = macro_value(statement, frame);
  const Value function = evaluate(*statement.value->operands[0], frame);
  Arguments arguments = arguments_of(*statement.value, frame);
  arguments.named.emplace_back("caller", caller);
  write_text(call(function, arguments), statement.line);
}

void Interpreter::run_generation(const Stmt& statement, const FramePtr& frame) {
  Arguments none;
  const std::string text = run_macro(statement, frame, none);
  if (out_ == &output_)
    generated_.push_back({output_.size(), output_.size() + text.size()});
  else
    unplaced_ = true;
  write(text);
}

void Interpreter::assign(const Expr& target, const Value& value, const FramePtr& frame) {
  if (target.kind == Expr::Kind::kName) {
    frame->slots[static_cast<size_t>(frame->scope->slot(target.text))] = value;
    return;
  }
  if (target.kind == Expr::Kind::kNamespaceRef) {
    const Value held = target.place.level < 0 ? Value::missing() : variable(*frame, target.place);
    if (!held.is(Kind::kNamespace))
      refuse("line ", target.line, ": wanted a namespace to assign to, found ", type_name(held));
    if (target.attribute.starts_with('_'))
      refuse("line ", target.line, ": names in a namespace may not begin with _");
    held.as<NamespaceObject>().attributes.set(budget_, make_text(budget_, target.attribute), value);
    return;
  }
  const std::vector<Value> items = iterate(budget_, value);
  if (items.size() != target.operands.size())
    refuse("line ", target.line, ": wanted ", target.operands.size(), " values to assign, found ",
           items.size());
  for (size_t i = 0; i < items.size(); ++i) assign(*target.operands[i], items[i], frame);
}

std::vector<Value> Interpreter::evaluate_all(const Expr& node, const FramePtr& frame) {
  std::vector<Value> values;
  for (const ExprPtr& operand : node.operands) values.push_back(evaluate(*operand, frame));
  return values;
}

Value Interpreter::evaluate(const Expr& node, const FramePtr& frame) {
  const Deeper deeper(*this);
  switch (node.kind) {
    case Expr::Kind::kConst:
      return node.constant;
    case Expr::Kind::kName: {
      Value value = Value::missing();
      if (node.place.level >= 0)
        value = variable(*frame, node.place);
      else if (const Value* found = context_value(node.text))
        value = *found;
      return value.is(Kind::kMissing)
                 ? Value::undefined("'" + printable(node.text) + "' is undefined")
                 : value;
    }
    case Expr::Kind::kTuple:
      return make_list(budget_, evaluate_all(node, frame), Kind::kTuple);
    case Expr::Kind::kList:
      return make_list(budget_, evaluate_all(node, frame));
    case Expr::Kind::kCond:
      if (truth(evaluate(*node.operands[0], frame))) return evaluate(*node.operands[1], frame);
      if (node.operands[2]) return evaluate(*node.operands[2], frame);
      return Value::undefined(str("line ", node.line, ": the inline if had no else"));
    case Expr::Kind::kOr:
    case Expr::Kind::kAnd: {
      const Value left = evaluate(*node.operands[0], frame);
      return truth(left) == (node.kind == Expr::Kind::kOr) ? left
                                                           : evaluate(*node.operands[1], frame);
    }
    case Expr::Kind::kAttribute:
      return attribute(evaluate(*node.operands[0], frame), node.text);
    case Expr::Kind::kCall: {
      const Value function = evaluate(*node.operands[0], frame);
      Arguments arguments = arguments_of(node, frame);
      return call(function, arguments);
    }
    case Expr::Kind::kFilter:
      return evaluate_filter(node,
                             node.operands[0]
                                 ? evaluate(*node.operands[0], frame)
                                 : text(filter_input_ == nullptr ? "" : *filter_input_),
                             frame);
    case Expr::Kind::kTest:
      return evaluate_test(node, frame);
    default:
      return evaluate_operation(node, frame);
  }
}

Value Interpreter::evaluate_operation(const Expr& node, const FramePtr& frame) {
  switch (node.kind) {
    case Expr::Kind::kNot:
      return Value::boolean(!truth(evaluate(*node.operands[0], frame)));
    case Expr::Kind::kNegative:
      return negative(evaluate(*node.operands[0], frame));
    case Expr::Kind::kPositive:
      return positive(evaluate(*node.operands[0], frame));
    case Expr::Kind::kCompare:
      return evaluate_compare(node, frame);
    case Expr::Kind::kBinary: {
      const Value left = evaluate(*node.operands[0], frame);
      return binary(budget_, node.operators[0], left, evaluate(*node.operands[1], frame));
    }
    case Expr::Kind::kConcat: {
      std::string out;
      for (const Value& value : evaluate_all(node, frame)) {
        budget_.make(value.is_text() ? value.as_text().size() : 0);
        out += value.is_text() ? value.as_text() : to_text(budget_, value);
      }
      return make_text(budget_, std::move(out));
    }
    case Expr::Kind::kDict:
      return evaluate_dict(node, frame);
    case Expr::Kind::kItem:
      return evaluate_item(node, frame);
    default:
      refuse("line ", node.line, ": a slice can only stand alone in brackets");
  }
}

Value Interpreter::evaluate_compare(const Expr& node, const FramePtr& frame) {
  Value left = evaluate(*node.operands[0], frame);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    Value right = evaluate(*node.operands[i + 1], frame);
    if (!compares(budget_, node.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_dict(const Expr& node, const FramePtr& frame) {
  auto dict = std::make_shared<DictObject>();
  for (size_t i = 0; i < node.operands.size(); i += 2) {
    const Value key = evaluate(*node.operands[i], frame);
    Value value = evaluate(*node.operands[i + 1], frame);
    if (!is_hashable(key))
      refuse("line ", node.line, ": wanted a key of a dict, found ", type_name(key));
    dict->set(budget_, key, std::move(value));
  }
  return make_dict(std::move(dict));
}

Value Interpreter::evaluate_item(const Expr& node, const FramePtr& frame) {
  const Value object = evaluate(*node.operands[0], frame);
  const Expr& key = *node.operands[1];
  if (key.kind != Expr::Kind::kSlice) return item(object, evaluate(key, frame));
  const auto part = [&](size_t i) {
    return key.operands[i] ? evaluate(*key.operands[i], frame) : Value::none();
  };
  const Value begin = part(0), end = part(1), step = part(2);
  // Jinja may compute constants beforehand, and there what cannot be sliced is undefined.
  if (!object.is_text() && !object.is_sequence() && is_constant(node))
    refuse("a slice of a constant ", type_name(object), " is not supported");
  return slice(budget_, object, begin, end, step);
}

Arguments Interpreter::arguments_of(const Expr& node, const FramePtr& frame) {
  Arguments arguments;
  for (size_t i = 1; i < node.operands.size(); ++i)
    arguments.positional.push_back(evaluate(*node.operands[i], frame));
  for (const auto& [name, value] : node.named)
    arguments.named.emplace_back(name, evaluate(*value, frame));
  if (node.all_positional)
    for (Value& value : iterate(budget_, evaluate(*node.all_positional, frame)))
      arguments.positional.push_back(std::move(value));
  if (!node.all_named) return arguments;
  const Value more = evaluate(*node.all_named, frame);
  if (!more.is(Kind::kDict))
    refuse("line ", node.line, ": wanted a dict behind **, found ", type_name(more));
  for (const auto& [name, value] : more.as<DictObject>().entries()) {
    if (!name.is_text())
      refuse("line ", node.line, ": wanted names of arguments, found ", type_name(name));
    for (const auto& other : arguments.named)
      if (other.first == name.as_text())
        refuse("line ", node.line, ": the argument ", printable(other.first), " is given twice");
    arguments.named.emplace_back(name.as_text(), value);
  }
  return arguments;
}

Value Interpreter::evaluate_filter(const Expr& node, const Value& input, const FramePtr& frame) {
  Arguments arguments = arguments_of(node, frame);
  return filter(node.text, input, arguments);
}

Value Interpreter::evaluate_test(const Expr& node, const FramePtr& frame) {
  const Value input = evaluate(*node.operands[0], frame);
  Arguments arguments = arguments_of(node, frame);
  return Value::boolean(test(node.text, input, arguments));
}

}  // namespace octavo::jinja
