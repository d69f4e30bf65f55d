#pragma once
// Macros, and the bodies of {% call %}: functions that are written in a template.

#include "jinja/interpreter.h"

namespace octavo::jinja {

struct MacroObject : CallableObject {
  const Stmt* statement = nullptr;
  FramePtr frame;  // where it was made

  Value call(Interpreter& interpreter, Arguments& arguments) override;
  std::string description() const override;
  Value attribute(std::string_view name) const override;
};

Value macro_value(const Stmt& statement, const FramePtr& frame);

}  // namespace octavo::jinja
