// The functions that every chat template has.
#include <cstdio>

#include "base/printable.h"
#include "jinja/function.h"
#include "jinja/interpreter.h"
#include "tokenizer/unicode.h"

namespace octavo::jinja {
namespace {

int64_t integer_argument(const char* function, const Value& value) {
  if (value.is(Kind::kUndefined)) refuse(value.why_undefined());
  if (!value.is_integral()) refuse(function, " wants integers, found ", type_name(value));
  return value.as_int();
}

Value range(Interpreter& run, Arguments& arguments) {
  const auto& given = arguments.positional;
  if (!arguments.named.empty() || given.empty() || given.size() > 3)
    refuse("range wants one to three integers");
  const auto at = [&](size_t i) { return integer_argument("range", given[i]); };
  if (given.size() == 1) return make_range(run.budget(), 0, at(0), 1);
  return make_range(run.budget(), at(0), at(1), given.size() == 3 ? at(2) : 1);
}

// The entries of dict(…): a dict or pairs, and names.
void fill_dict(Interpreter& run, const Arguments& arguments, DictObject& dict) {
  if (arguments.positional.size() > 1) refuse("dict takes at most one positional argument");
  for (const Value& from : arguments.positional) {
    if (from.is(Kind::kDict)) {
      for (const auto& [key, value] : from.as<DictObject>().entries())
        dict.set(run.budget(), key, value);
      continue;
    }
    for (const Value& pair : iterate(run.budget(), from)) {
      const std::vector<Value> parts = iterate(run.budget(), pair);
      if (parts.size() != 2 || !is_hashable(parts[0]))
        refuse("dict wants pairs of keys and values");
      dict.set(run.budget(), parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(run.budget(), run.text(name), value);
}

Value dict(Interpreter& run, Arguments& arguments) {
  auto made = std::make_shared<DictObject>();
  fill_dict(run, arguments, *made);
  return make_dict(std::move(made));
}

Value new_namespace(Interpreter& run, Arguments& arguments) {
  auto made = std::make_shared<NamespaceObject>();
  fill_dict(run, arguments, made->attributes);
  for (const auto& entry : made->attributes.entries())
    if (entry.first.is_text() && entry.first.as_text().starts_with('_'))
      refuse("names in a namespace may not begin with _");
  return run.new_namespace(std::move(made));
}

Value raise_exception(Interpreter& run, Arguments& arguments) {
  const auto bound = bind_arguments("raise_exception", arguments, {"message"}, 1);
  refuse("the template refuses: ", printable(to_text(run.budget(), bound[0]), 1000, true));
}

// A naive time has no zone; C knows no fractions of seconds.
Value strftime_now(Interpreter& run, Arguments& arguments) {
  const auto bound = bind_arguments("strftime_now", arguments, {"format"}, 1);
  if (!bound[0].is_text()) refuse("strftime_now wants text, found ", type_name(bound[0]));
  constexpr size_t kLongest = 1000;
  const std::string& given = bound[0].as_text();
  if (given.size() > kLongest) refuse("strftime_now wants at most ", kLongest, " characters");
  std::string format;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] == '\0') refuse("strftime_now wants text without zeros");
    if (given[i] != '%' || i + 1 == given.size()) {
      format += given[i];
      continue;
    }
    const char kind = given[++i];
    if (kind >= '0' && kind <= '9') refuse("strftime_now with widths is not supported");
    if (kind == 'f')
      format += "000000";
    else if (kind != 'z' && kind != 'Z')
      format += {'%', kind};
  }
  if (format.empty()) return run.text("");
  char buffer[32 * kLongest];
  const size_t size = std::strftime(buffer, sizeof(buffer), format.c_str(), &run.now());
  std::string text(buffer, size);
  if (tokenizer::find_invalid_utf8(text) != std::string::npos)
    refuse("strftime_now wants a format of C");
  return run.text(std::move(text));
}

// joiner: nothing the first time, the separator ever after.
Value joiner(Interpreter&, Arguments& arguments) {
  const auto bound = bind_arguments("joiner", arguments, {"sep"});
  const Value separator = bound[0].is(Kind::kMissing) ? Value::text(", ") : bound[0];
  auto used = std::make_shared<bool>(false);
  return function_value([separator, used](Interpreter&, Arguments&) {
    return std::exchange(*used, true) ? separator : Value::text("");
  });
}

Value unsupported_function(Interpreter&, Arguments&) {
  refuse("the functions lipsum and cycler are not supported");
}

}  // namespace

void add_globals(Interpreter& interpreter, DictObject& globals) {
  constexpr std::pair<const char*, Value (*)(Interpreter&, Arguments&)> kFunctions[] = {
      {"range", range},
      {"dict", dict},
      {"namespace", new_namespace},
      {"raise_exception", raise_exception},
      {"strftime_now", strftime_now},
      {"joiner", joiner},
      {"cycler", unsupported_function},
      {"lipsum", unsupported_function},
  };
  for (const auto& [name, function] : kFunctions)
    globals.set(interpreter.budget(), Value::text(name), function_value(function));
}

}  // namespace octavo::jinja
