// The methods of str.
#include <algorithm>

#include "jinja/methods.h"
#include "jinja/operators.h"
#include "jinja/python_text.h"
#include "tokenizer/unicode.h"

namespace octavo::jinja {
namespace {

const std::string& text_of(const Value& value, const char* method) {
  if (!value.is_text()) refuse(method, ": wanted text, found ", type_name(value));
  return value.as_text();
}

int64_t integer_of(const Value& value, const char* method, int64_t otherwise) {
  if (value.is(Kind::kMissing)) return otherwise;
  if (!value.is_integral()) refuse(method, ": wanted an integer, found ", type_name(value));
  return value.as_int();
}

std::vector<Value> positional(const char* method, const Arguments& arguments,
                              std::initializer_list<const char*> names, size_t required) {
  if (!arguments.named.empty()) refuse(method, " has no named arguments");
  return bind_arguments(method, arguments, names, required);
}

template <Ends ends>
Value strip_method(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto bound = positional("strip", arguments, {"chars"}, 0);
  const std::string& text = self.as_text();
  run.budget().step(1 + text.size() / 64);
  if (bound[0].is(Kind::kMissing) || bound[0].is(Kind::kNone))
    return run.text(std::string(strip(text, ends)));
  const std::string& characters = text_of(bound[0], "strip");
  run.budget().step(characters.size() / 64);
  return run.text(std::string(strip(text, characters, ends)));
}

template <std::string (*change)(std::string_view)>
Value changed_method(Interpreter& run, const Value& self, const Arguments& arguments) {
  positional("the method", arguments, {}, 0);
  run.budget().make(self.as_text().size() * 4);
  return run.text(change(self.as_text()));
}

template <TextClass wanted>
Value class_method(Interpreter& run, const Value& self, const Arguments& arguments) {
  positional("the method", arguments, {}, 0);
  run.budget().make(self.as_text().size() * 4);
  return Value::boolean(is_all(self.as_text(), wanted));
}

Value texts(Interpreter& run, std::vector<std::string> parts, Kind kind = Kind::kList) {
  std::vector<Value> values;
  for (std::string& part : parts) values.push_back(run.text(std::move(part)));
  return make_list(run.budget(), std::move(values), kind);
}

// At runs of white space, from the left.
std::vector<std::string> split_at_space(std::string_view text, int64_t most) {
  std::vector<std::string> parts;
  text = strip(text, Ends::kLeft);
  while (!text.empty()) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.emplace_back(strip(text, Ends::kRight));
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const tokenizer::CodePoint point = tokenizer::decode_utf8(text.data() + end);
      if (is_space(point.value)) break;
      end += point.length;
    }
    parts.emplace_back(text.substr(0, end));
    text = strip(text.substr(end), Ends::kLeft);
  }
  return parts;
}

std::vector<std::string> split_at_space_from_right(std::string_view text, int64_t most) {
  std::vector<std::string> parts;
  text = strip(text, Ends::kRight);
  while (!text.empty()) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.emplace_back(strip(text, Ends::kLeft));
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t at = begin - 1;
      while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
      if (is_space(tokenizer::decode_utf8(text.data() + at).value)) break;
      begin = at;
    }
    parts.emplace_back(text.substr(begin));
    text = strip(text.substr(0, begin), Ends::kRight);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_at(std::string_view text, std::string_view separator, int64_t most,
                                  bool from_right) {
  std::vector<std::string> parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == text.npos) break;
    parts.emplace_back(from_right ? text.substr(at + separator.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + separator.size());
  }
  parts.emplace_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool from_right>
Value split_method(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("split", arguments, {"sep", "maxsplit"});
  const std::string& text = self.as_text();
  const int64_t most = integer_of(bound[1], "split", -1);
  run.budget().make_items(text.size() + 1);
  if (bound[0].is(Kind::kMissing) || bound[0].is(Kind::kNone))
    return texts(run,
                 from_right ? split_at_space_from_right(text, most) : split_at_space(text, most));
  const std::string& separator = text_of(bound[0], "split");
  if (separator.empty()) refuse("split wants a separator that is not empty");
  return texts(run, split_at(text, separator, most, from_right));
}

template <bool at_end>
Value begins_or_ends(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto bound =
      positional(at_end ? "endswith" : "startswith", arguments, {"prefix", "start", "end"}, 1);
  if (!bound[1].is(Kind::kMissing)) refuse("startswith and endswith with bounds are not supported");
  run.budget().step();
  const auto matches = [&](const Value& part) {
    const std::string& wanted = text_of(part, "startswith");
    return at_end ? self.as_text().ends_with(wanted) : self.as_text().starts_with(wanted);
  };
  if (!bound[0].is(Kind::kTuple)) return Value::boolean(matches(bound[0]));
  for (const Value& part : bound[0].items())
    if (matches(part)) return Value::boolean(true);
  return Value::boolean(false);
}

// Bytes that replacing makes at most, before it is done.
uint64_t replaced_size(std::string_view text, std::string_view old, std::string_view with,
                       int64_t most) {
  uint64_t count = count_of(text, old);
  if (most >= 0) count = std::min(count, static_cast<uint64_t>(most));
  return text.size() + count * with.size();
}

Value replace_method(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto bound = positional("replace", arguments, {"old", "new", "count"}, 2);
  const std::string &old = text_of(bound[0], "replace"), &with = text_of(bound[1], "replace");
  const int64_t most = integer_of(bound[2], "replace", -1);
  run.budget().make(replaced_size(self.as_text(), old, with, most));
  return Value::text(replace_all(self.as_text(), old, with, most));
}

Value join_method(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto bound = positional("join", arguments, {"iterable"}, 1);
  std::string out;
  bool first = true;
  for (const Value& item : iterate(run.budget(), bound[0])) {
    const std::string& part = text_of(item, "join");
    run.budget().make(part.size() + self.as_text().size());
    if (!first) out += self.as_text();
    first = false;
    out += part;
  }
  return Value::text(std::move(out));
}

// Where a part begins, in code points; -1 when it is not there.
template <bool from_right, bool must_be_there>
Value find_method(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto bound = positional("find", arguments, {"sub", "start", "end"}, 1);
  if (!bound[1].is(Kind::kMissing)) refuse("find and index with bounds are not supported");
  const std::string &text = self.as_text(), &part = text_of(bound[0], "find");
  run.budget().step(1 + text.size() / 64);
  const size_t at = from_right ? text.rfind(part) : text.find(part);
  if (at == text.npos && must_be_there) refuse("index: the text is not there");
  return Value::integer(at == text.npos ? -1
                                        : static_cast<int64_t>(length_in_points(
                                              std::string_view(text).substr(0, at))));
}

Value count_method(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto bound = positional("count", arguments, {"sub"}, 1);
  run.budget().step(1 + self.as_text().size() / 64);
  return Value::integer(static_cast<int64_t>(count_of(self.as_text(), text_of(bound[0], "count"))));
}

Value lines_method(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("splitlines", arguments, {"keepends"});
  run.budget().make_items(self.as_text().size() + 1);
  return texts(run, split_lines(self.as_text(), !bound[0].is(Kind::kMissing) && truth(bound[0])));
}

template <bool at_end>
Value remove_method(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto bound = positional("removeprefix", arguments, {"prefix"}, 1);
  const std::string &text = self.as_text(), &part = text_of(bound[0], "removeprefix");
  if (at_end)
    return run.text(
        !part.empty() && text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text);
  return run.text(text.starts_with(part) ? text.substr(part.size()) : text);
}

template <bool from_right>
Value partition_method(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto bound = positional("partition", arguments, {"sep"}, 1);
  const std::string &text = self.as_text(), &separator = text_of(bound[0], "partition");
  if (separator.empty()) refuse("partition wants a separator that is not empty");
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  if (at == text.npos)
    return from_right ? texts(run, {"", "", text}, Kind::kTuple)
                      : texts(run, {text, "", ""}, Kind::kTuple);
  return texts(run, {text.substr(0, at), separator, text.substr(at + separator.size())},
               Kind::kTuple);
}

enum class Side { kLeft, kRight, kBoth };
template <Side side>
Value pad_method(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto bound = positional("the method", arguments, {"width", "fillchar"}, 1);
  const std::string fill = bound[1].is(Kind::kMissing) ? " " : text_of(bound[1], "fillchar");
  if (length_in_points(fill) != 1) refuse("wanted one character to fill with");
  const int64_t width = integer_of(bound[0], "width", 0);
  const auto size = static_cast<int64_t>(length_in_points(self.as_text()));
  const int64_t missing = std::max<int64_t>(width - size, 0);
  run.budget().make(static_cast<uint64_t>(missing) * 4 + self.as_text().size());
  const int64_t left = side == Side::kLeft    ? missing
                       : side == Side::kRight ? 0
                                              : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.as_text();
  for (int64_t i = left; i < missing; ++i) out += fill;
  return Value::text(std::move(out));
}

Value zfill_method(Interpreter& run, const Value& self, const Arguments& arguments) {
  const auto bound = positional("zfill", arguments, {"width"}, 1);
  const int64_t width = integer_of(bound[0], "zfill", 0);
  std::string text = self.as_text();
  const auto size = static_cast<int64_t>(length_in_points(text));
  if (width <= size) return self;
  run.budget().make(static_cast<uint64_t>(width) + text.size());
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  text.insert(sign, static_cast<size_t>(width - size), '0');
  return Value::text(std::move(text));
}

Value format_method(Interpreter& run, const Value& self, const Arguments& arguments) {
  return run.text(brace_format(run, self.as_text(), arguments));
}

template <int>
Value unsupported(Interpreter&, const Value&, const Arguments&) {
  refuse("this method of texts is not supported");
}

constexpr Method kTextMethods[] = {
    {"strip", strip_method<Ends::kBoth>},
    {"lstrip", strip_method<Ends::kLeft>},
    {"rstrip", strip_method<Ends::kRight>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", lines_method},
    {"startswith", begins_or_ends<false>},
    {"endswith", begins_or_ends<true>},
    {"replace", replace_method},
    {"upper", changed_method<upper>},
    {"lower", changed_method<lower>},
    {"casefold", unsupported<0>},
    {"title", changed_method<title>},
    {"capitalize", changed_method<capitalize>},
    {"swapcase", unsupported<0>},
    {"join", join_method},
    {"find", find_method<false, false>},
    {"rfind", find_method<true, false>},
    {"index", find_method<false, true>},
    {"rindex", find_method<true, true>},
    {"count", count_method},
    {"removeprefix", remove_method<false>},
    {"removesuffix", remove_method<true>},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
    {"ljust", pad_method<Side::kRight>},
    {"rjust", pad_method<Side::kLeft>},
    {"center", pad_method<Side::kBoth>},
    {"zfill", zfill_method},
    {"format", format_method},
    {"isupper", class_method<TextClass::kUpper>},
    {"islower", class_method<TextClass::kLower>},
    {"isspace", class_method<TextClass::kSpace>},
    {"isdigit", class_method<TextClass::kDigit>},
    {"isalpha", class_method<TextClass::kAlpha>},
    {"isalnum", class_method<TextClass::kAlnum>},
    {"encode", unsupported<0>},
    {"expandtabs", unsupported<0>},
    {"format_map", unsupported<0>},
    {"isascii", unsupported<0>},
    {"isdecimal", unsupported<0>},
    {"isidentifier", unsupported<0>},
    {"isnumeric", unsupported<0>},
    {"isprintable", unsupported<0>},
    {"istitle", unsupported<0>},
    {"maketrans", unsupported<0>},
    {"translate", unsupported<0>},
};

}  // namespace

const Method* find_text_method(std::string_view name) {
  for (const Method& method : kTextMethods)
    if (method.name == name) return &method;
  return nullptr;
}

}  // namespace octavo::jinja
