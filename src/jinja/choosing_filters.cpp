// Filters that apply another filter or a test to each item.
#include "jinja/filters.h"
#include "jinja/python_text.h"

namespace octavo::jinja {
namespace {

Value map_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  if (!truth(input)) return make_iterator(run.budget(), {});
  std::vector<Value> out;
  if (arguments.positional.empty()) {
    const auto bound = bind_arguments("map", arguments, {"attribute", "default"}, 1);
    const Value otherwise = bound[1].is(Kind::kNone) ? Value::missing() : bound[1];
    for (const Value& item : iterate(run.budget(), input))
      out.push_back(read_path(run, item, bound[0], otherwise));
    return make_iterator(run.budget(), std::move(out));
  }
  if (!arguments.positional[0].is_text()) refuse("map wants the name of a filter");
  const std::string name = arguments.positional[0].as_text();
  for (const Value& item : iterate(run.budget(), input)) {
    Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
    out.push_back(run.filter(name, item, rest));
  }
  return make_iterator(run.budget(), std::move(out));
}

// select, reject; by an attribute: selectattr, rejectattr. Without a test: what is true.
template <bool keep, bool by_attribute>
Value choose_filter(Interpreter& run, const Value& input, Arguments& arguments) {
  if (!truth(input)) return make_iterator(run.budget(), {});
  const size_t skipped = by_attribute ? 1 : 0;
  if (arguments.positional.size() < skipped) refuse("wanted the name of an attribute");
  const bool has_test = arguments.positional.size() > skipped;
  if (has_test && !arguments.positional[skipped].is_text()) refuse("wanted the name of a test");
  std::vector<Value> out;
  for (const Value& item : iterate(run.budget(), input)) {
    const Value looked_at =
        by_attribute ? read_path(run, item, arguments.positional[0], Value::missing()) : item;
    bool chosen = false;
    if (has_test) {
      Arguments rest{{arguments.positional.begin() + static_cast<std::ptrdiff_t>(skipped) + 1,
                      arguments.positional.end()},
                     arguments.named};
      chosen = run.test(arguments.positional[skipped].as_text(), looked_at, rest);
    } else {
      chosen = truth(looked_at);
    }
    if (chosen == keep) out.push_back(item);
  }
  return make_iterator(run.budget(), std::move(out));
}

constexpr Filter kChoosingFilters[] = {
    {"map", map_filter},
    {"select", choose_filter<true, false>},
    {"reject", choose_filter<false, false>},
    {"selectattr", choose_filter<true, true>},
    {"rejectattr", choose_filter<false, true>},
};

}  // namespace

const Filter* find_choosing_filter(std::string_view name) {
  for (const Filter& filter : kChoosingFilters)
    if (filter.name == name) return &filter;
  return nullptr;
}

}  // namespace octavo::jinja
