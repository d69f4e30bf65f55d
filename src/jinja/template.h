#pragma once
// Chat templates: Jinja as transformers configures it (trim_blocks, lstrip_blocks, loop controls,
// {% generation %}, tojson without HTML, no file or network), run within limits. Values are
// Python's; integers of more than 64 bits and what of Jinja chat templates do not use is refused.

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/interpreter.h"

namespace octavo::jinja {

struct RenderOptions {
  Limits limits;
  std::optional<std::tm> now;  // what strftime_now says; this moment when there is none
};

struct Rendered {
  std::string text;
  std::vector<Span> generated;  // the parts in {% generation %}, in order
  bool generation_is_unplaced = false;
};

class Template {
 public:
  // `source` names it in messages.
  Template(std::string_view text, std::string source);
  Rendered render(const OrderedJson& context, const RenderOptions& options = {}) const;
  bool has_generation() const { return tree_.has_generation; }
  const std::string& source() const { return source_; }

 private:
  std::string source_;
  Tree tree_;
};

}  // namespace octavo::jinja
