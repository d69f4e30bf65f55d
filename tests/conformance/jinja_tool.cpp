// Renders templates for jinja.py: a JSON object {template, contexts} on each line of stdin, and on
// each line of stdout a list of what its contexts gave, {text, spans} or {error}. Spans count code
// points, as Python does. The clock stands still.
#include <iostream>

#include "jinja/python_text.h"
#include "jinja/template.h"
#include "tool_main.h"

namespace octavo {
namespace {

using jinja::OrderedJson;

OrderedJson rendered(const jinja::Template& made, const OrderedJson& context) {
  jinja::RenderOptions options;
  std::tm now{};
  now.tm_year = 124, now.tm_mon = 1, now.tm_mday = 29, now.tm_hour = 13, now.tm_min = 5,
  now.tm_sec = 9;
  now.tm_wday = 4, now.tm_yday = 59;
  options.now = now;
  try {
    const jinja::Rendered result = made.render(context, options);
    OrderedJson spans = OrderedJson::array();
    const auto points = [&](size_t bytes) {
      return jinja::length_in_points(std::string_view(result.text).substr(0, bytes));
    };
    for (const jinja::Span& span : result.generated)
      spans.push_back({points(span.begin), points(span.end)});
    return {{"text", result.text}, {"spans", spans}, {"unplaced", result.generation_is_unplaced}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

void run() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const OrderedJson job = OrderedJson::parse(line);
    OrderedJson results = OrderedJson::array();
    try {
      const jinja::Template made(job.at("template").get<std::string>(), "template");
      for (const OrderedJson& context : job.at("contexts"))
        results.push_back(rendered(made, context));
    } catch (const Error& error) {
      for (size_t i = 0; i < job.at("contexts").size(); ++i)
        results.push_back({{"error", error.what()}});
    }
    std::cout << results.dump() << '\n';
  }
  std::cout.flush();
}

}  // namespace
}  // namespace octavo

int main() {
  return octavo::tool_main(octavo::run);
}
