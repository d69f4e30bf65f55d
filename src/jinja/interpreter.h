#pragma once
// Runs a tree.

#include <ctime>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "jinja/tree.h"

namespace octavo::jinja {

// The variables of a scope that was entered.
struct Frame {
  const Scope* scope = nullptr;
  std::shared_ptr<Frame> parent;
  std::vector<Value> slots;
  bool is_kept = false;  // a macro refers to it
};
using FramePtr = std::shared_ptr<Frame>;

struct Span {
  size_t begin = 0, end = 0;  // bytes of the output
};

class Interpreter {
 public:
  Interpreter(const Limits& limits, const std::tm& now) : budget_(limits), now_(now) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string run(const Tree& tree, const OrderedJson& context);
  // What {% generation %} marked.
  const std::vector<Span>& generated() const { return generated_; }
  // One stood inside a macro or a block whose text went elsewhere: where is not known.
  bool generation_is_unplaced() const { return unplaced_; }

  // For functions, filters and tests.
  Budget& budget() { return budget_; }
  const std::tm& now() const { return now_; }
  Value call(const Value& function, Arguments& arguments);
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& key);
  Value filter(const std::string& name, const Value& input, Arguments& arguments);
  bool test(const std::string& name, const Value& input, Arguments& arguments);
  Value text(std::string value) { return make_text(budget_, std::move(value)); }
  Value new_namespace(std::shared_ptr<NamespaceObject> made);
  // Values that may hold themselves are taken apart when all is done.
  void at_the_end(std::function<void()> action) {
    budget_.make_items(4);
    endings_.push_back(std::move(action));
  }

 private:
  friend struct MacroObject;
  enum class Flow { kNext, kBreak, kContinue };
  class Deeper;

  FramePtr new_frame(const Scope& scope, const FramePtr& parent);
  void enter(Frame& frame);
  void leave(Frame& frame);
  void keep(const FramePtr& frame);
  Value variable(const Frame& frame, Place place) const;

  Flow run(const Body& body, const FramePtr& frame);
  Flow run(const Stmt& statement, const FramePtr& frame);
  Flow run_if(const Stmt& statement, const FramePtr& frame);
  Flow run_for(const Stmt& statement, const FramePtr& frame);
  Flow run_captured(const Stmt& statement, const FramePtr& frame);
  Flow run_with(const Stmt& statement, const FramePtr& frame);
  void run_call(const Stmt& statement, const FramePtr& frame);
  void run_generation(const Stmt& statement, const FramePtr& frame);
  void assign(const Expr& target, const Value& value, const FramePtr& frame);
  void write(std::string_view text);
  void write_text(const Value& value, int line);
  std::string run_macro(const Stmt& statement, const FramePtr& frame, Arguments& arguments);
  void fill_parameters(const Stmt& statement, const FramePtr& frame, Arguments& arguments);

  Value evaluate(const Expr& node, const FramePtr& frame);
  Value evaluate_operation(const Expr& node, const FramePtr& frame);
  Value evaluate_compare(const Expr& node, const FramePtr& frame);
  Value evaluate_dict(const Expr& node, const FramePtr& frame);
  Value evaluate_item(const Expr& node, const FramePtr& frame);
  Value evaluate_filter(const Expr& node, const Value& input, const FramePtr& frame);
  Value evaluate_test(const Expr& node, const FramePtr& frame);
  std::vector<Value> evaluate_all(const Expr& node, const FramePtr& frame);
  Arguments arguments_of(const Expr& node, const FramePtr& frame);
  const Value* context_value(const std::string& name) const;

  Budget budget_;
  std::tm now_;
  DictObject context_, globals_;
  std::string output_;
  std::string* out_ = &output_;
  std::string* filter_input_ = nullptr;  // the text of the block whose filter is evaluated
  std::vector<Span> generated_;
  bool unplaced_ = false;
  int depth_ = 0;
  std::vector<std::function<void()>> endings_;
  std::vector<FramePtr> kept_;
};

// The functions that every template has: range, namespace, raise_exception, …
void add_globals(Interpreter& interpreter, DictObject& globals);

// Arguments by name, as Python binds them: `names` in order, the first `required` of them must be
// there. Missing ones come out as Kind::kMissing.
std::vector<Value> bind_arguments(std::string_view function, const Arguments& arguments,
                                  std::initializer_list<const char*> names, size_t required = 0);

}  // namespace octavo::jinja
