// Filters that make text.
#include <algorithm>

#include "jinja/filters.h"
#include "jinja/operators.h"
#include "jinja/python_text.h"

namespace octavo::jinja {
namespace {

std::string input_text(Interpreter& run, const Value& input) {
  std::string text = to_text(run.budget(), input);
  run.budget().make(text.size() * 4);
  return text;
}

bool is_true(const Value& value) {
  return !value.is(Kind::kMissing) && truth(value);
}

void only_plain(const char* filter, const Value& input) {
  if (input.is_markup()) refuse(filter, " of text that is marked as safe is not supported");
}

template <std::string (*change)(std::string_view)>
Value changed(Interpreter& run, const Value& input, Arguments& arguments) {
  bind_arguments("the filter", arguments, {});
  only_plain("the filter", input);
  return run.text(change(input_text(run, input)));
}

// The filter's own: words begin behind white space and opening brackets.
std::string title_words(std::string_view text) {
  std::u32string out;
  const std::u32string points = code_points(text);
  const auto separates = [](char32_t p) {
    return p == '-' || p == '(' || p == '{' || p == '[' || p == '<' || is_space(p);
  };
  for (size_t i = 0; i < points.size();) {
    size_t end = i;
    const bool separator = separates(points[i]);
    while (end < points.size() && separates(points[end]) == separator) ++end;
    const std::u32string_view word(points.data() + i, end - i);
    out += code_points(upper(to_utf8(word.substr(0, 1))));
    out += code_points(lower(to_utf8(word.substr(1))));
    i = end;
  }
  return to_utf8(out);
}

Value trim_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("trim", arguments, {"chars"});
  const std::string text = input_text(run, input);
  Value made;
  if (bound[0].is(Kind::kMissing) || bound[0].is(Kind::kNone)) {
    made = run.text(std::string(strip(text, Ends::kBoth)));
  } else {
    if (!bound[0].is_text()) refuse("trim wants text, found ", type_name(bound[0]));
    made = run.text(std::string(strip(text, bound[0].as_text(), Ends::kBoth)));
  }
  return input.is_markup() ? made.marked() : made;
}

Value replace_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("replace", arguments, {"old", "new", "count"}, 2);
  const std::string text = input_text(run, input);
  const std::string old = to_text(run.budget(), bound[0]), with = to_text(run.budget(), bound[1]);
  int64_t most = -1;
  if (!bound[2].is(Kind::kMissing) && !bound[2].is(Kind::kNone)) {
    if (!bound[2].is_integral()) refuse("replace wants an integer, found ", type_name(bound[2]));
    most = bound[2].as_int();
  }
  uint64_t count = count_of(text, old);
  if (most >= 0) count = std::min(count, static_cast<uint64_t>(most));
  run.budget().make(text.size() + count * with.size());
  return Value::text(replace_all(text, old, with, most));
}

Value string_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  bind_arguments("string", arguments, {});
  return input.is_text() ? input : run.text(to_text(run.budget(), input));
}

Value safe_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  bind_arguments("safe", arguments, {});
  return run.text(to_text(run.budget(), input)).marked();
}

Value escape_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  bind_arguments("escape", arguments, {});
  if (input.is_markup()) return input;
  const std::string text = to_text(run.budget(), input);
  run.budget().make(text.size() * 6);
  return run.text(escape_html(text)).marked();
}

Value indent_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("indent", arguments, {"width", "first", "blank"});
  if (input.is(Kind::kUndefined)) refuse(input.why_undefined());
  if (!input.is_text()) refuse("indent wants text, found ", type_name(input));
  only_plain("indent", input);
  std::string margin(4, ' ');
  if (bound[0].is_text()) {
    margin = bound[0].as_text();
  } else if (!bound[0].is(Kind::kMissing)) {
    if (!bound[0].is_integral()) refuse("indent wants a width, found ", type_name(bound[0]));
    const int64_t width = std::max<int64_t>(bound[0].as_int(), 0);
    run.budget().make(static_cast<uint64_t>(width));
    margin.assign(static_cast<size_t>(width), ' ');
  }
  const auto lines = split_lines(input_text(run, input) + "\n", false);
  run.budget().make_items(lines.size());
  if (lines.size() > 0 && margin.size() > (uint64_t{1} << 40) / lines.size())
    run.budget().make(UINT64_MAX / 2);
  run.budget().make(margin.size() * lines.size());
  std::string out = is_true(bound[1]) ? margin + lines[0] : lines[0];
  for (size_t i = 1; i < lines.size(); ++i) {
    out += '\n';
    if (is_true(bound[2]) || !lines[i].empty()) out += margin;
    out += lines[i];
  }
  return run.text(std::move(out));
}

Value join_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("join", arguments, {"d", "attribute"});
  const std::string separator = bound[0].is(Kind::kMissing) ? "" : to_text(run.budget(), bound[0]);
  const bool by_path = !bound[1].is(Kind::kMissing) && !bound[1].is(Kind::kNone);
  std::string out;
  bool first = true;
  for (const Value& item : iterate(run.budget(), input)) {
    const std::string part =
        to_text(run.budget(), by_path ? read_path(run, item, bound[1], Value::missing()) : item);
    run.budget().make(part.size() + separator.size());
    if (!first) out += separator;
    first = false;
    out += part;
  }
  return run.text(std::move(out));
}

Value center_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound = bind_arguments("center", arguments, {"width"});
  const Value width = bound[0].is(Kind::kMissing) ? Value::integer(80) : bound[0];
  only_plain("center", input);
  Arguments padding{.positional = {width}, .named = {}};
  return run.call(run.attribute(run.text(input_text(run, input)), "center"), padding);
}

Value format_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    refuse("format wants values by position or by name");
  only_plain("format", input);
  Value values;
  if (arguments.named.empty()) {
    values = make_list(run.budget(), arguments.positional, Kind::kTuple);
  } else {
    auto dict = std::make_shared<DictObject>();
    for (const auto& [name, value] : arguments.named)
      dict->set(run.budget(), run.text(name), value);
    values = make_dict(std::move(dict));
  }
  return run.text(percent_format(run.budget(), input_text(run, input), values));
}

Value truncate_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound =
      bind_arguments("truncate", arguments, {"length", "killwords", "end", "leeway"});
  only_plain("truncate", input);
  const auto number = [&](size_t i, int64_t otherwise) {
    if (bound[i].is(Kind::kMissing) || (i == 3 && bound[i].is(Kind::kNone))) return otherwise;
    if (!bound[i].is_integral()) refuse("truncate wants integers, found ", type_name(bound[i]));
    return bound[i].as_int();
  };
  const int64_t length = number(0, 255), leeway = number(3, 5);
  if (!bound[2].is(Kind::kMissing) && !bound[2].is_text())
    refuse("truncate wants text for its end");
  const std::u32string end = code_points(bound[2].is(Kind::kMissing) ? "..." : bound[2].as_text());
  const auto end_size = static_cast<int64_t>(end.size());
  if (length < end_size || leeway < 0)
    refuse("truncate wants a length of at least its end's, and a leeway of at least 0");
  // Python's len() comes first: a list that is short enough is left as it is.
  const auto found = length_of(input);
  if (found) {
    const auto size = static_cast<int64_t>(*found);
    if (size <= length || size - length <= leeway) return input;
  }
  if (!input.is_text()) refuse("truncate wants text, found ", type_name(input));
  const std::u32string points = code_points(input_text(run, input));
  std::u32string kept = points.substr(0, static_cast<size_t>(length - end_size));
  if (!is_true(bound[1])) kept = kept.substr(0, kept.rfind(U' '));
  return run.text(to_utf8(kept + end));
}

Value wordcount_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  bind_arguments("wordcount", arguments, {});
  int64_t count = 0;
  bool inside = false;
  for (const char32_t point : code_points(input_text(run, input))) {
    count += !inside && is_word(point) ? 1 : 0;
    inside = is_word(point);
  }
  return Value::integer(count);
}

constexpr Filter kTextFilters[] = {
    {"upper", changed<upper>},
    {"lower", changed<lower>},
    {"capitalize", changed<capitalize>},
    {"title", changed<title_words>},
    {"trim", trim_filter},
    {"replace", replace_filter},
    {"string", string_filter},
    {"safe", safe_filter},
    {"escape", escape_filter},
    {"e", escape_filter},
    {"indent", indent_filter},
    {"join", join_filter},
    {"center", center_filter},
    {"format", format_filter},
    {"truncate", truncate_filter},
    {"wordcount", wordcount_filter},
};

}  // namespace

const Filter* find_text_filter(std::string_view name) {
  for (const Filter& filter : kTextFilters)
    if (filter.name == name) return &filter;
  return nullptr;
}

}  // namespace octavo::jinja
