// An untrusted template with a small chat. It may do nothing but write text, within its limits.
#include "fuzz/harness.h"
#include "jinja/template.h"
#include "tokenizer/unicode.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  static const auto context = jinja::OrderedJson::parse(R"({
    "messages": [{"role": "user", "content": "Hi <b> "}, {"role": "assistant", "content": "Héllo\n"}],
    "n": 3, "f": 2.5, "s": "Some text, here", "none": null, "flag": true, "d": {"b": 1, "a": "x", "c": [1, 2]},
    "l": [3, 1, 2], "words": ["pear", "Apple"], "eos_token": "</s>"})");
  jinja::RenderOptions options;
  options.now = std::tm{};
  options.limits = {.steps = 20'000, .made_bytes = 4 << 20, .output_bytes = 1 << 20, .depth = 200};
  fuzz::refusal_of([&] {
    const jinja::Template made(input, "template");
    const jinja::Rendered first = made.render(context, options);
    fuzz::check(first.text.size() <= options.limits.output_bytes, "more output than allowed");
    fuzz::check(tokenizer::find_invalid_utf8(first.text) == std::string::npos,
                "output that is no UTF-8");
    size_t at = 0;
    for (const jinja::Span& span : first.generated) {
      fuzz::check(span.begin >= at && span.end >= span.begin && span.end <= first.text.size(),
                  "a span outside the text");
      at = span.end;
    }
    if (input.size() % 16 == 0)
      fuzz::check(made.render(context, options).text == first.text, "another text the second time");
  });
}
