#include "jinja/template.h"

#include "base/error.h"
#include "jinja/parser.h"
#include "tokenizer/unicode.h"

namespace octavo::jinja {
namespace {

// Says which template it was.
template <typename Action>
auto in_template(const std::string& source, const Action& action) {
  try {
    return action();
  } catch (const Error& error) {
    fail(error.code(), "jinja", source, ": ", error.what());
  }
}

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

}  // namespace

Template::Template(std::string_view text, std::string source) : source_(std::move(source)) {
  constexpr size_t kLongest = size_t{1} << 19;
  tree_ = in_template(source_, [&] {
    if (text.size() > kLongest)
      refuse("wanted a template of at most ", kLongest, " bytes, found ", text.size());
    if (tokenizer::find_invalid_utf8(text) != std::string_view::npos)
      refuse("wanted UTF-8, found other bytes");
    return parse(text);
  });
}

Rendered Template::render(const OrderedJson& context, const RenderOptions& options) const {
  return in_template(source_, [&] {
    Interpreter interpreter(options.limits, options.now ? *options.now : local_now());
    Rendered rendered;
    rendered.text = interpreter.run(tree_, context);
    rendered.generated = interpreter.generated();
    rendered.generation_is_unplaced = interpreter.generation_is_unplaced();
    return rendered;
  });
}

}  // namespace octavo::jinja
