// text % values and text.format(values), in the forms that templates use.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/printable.h"
#include "jinja/methods.h"
#include "jinja/operators.h"
#include "jinja/python_text.h"

namespace octavo::jinja {
namespace {

constexpr int64_t kWidest = 10'000;

struct Conversion {
  std::string flags;
  std::string name;  // of %(name)s
  int64_t width = 0, precision = -1;
  char type = 's';
  bool is_named = false;
};

int64_t number_in(std::string_view text, size_t& at) {
  int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = std::min(value * 10 + (text[at++] - '0'), kWidest + 1);
    if (value > kWidest) refuse("wanted a width of at most ", kWidest, " in a format");
  }
  return value;
}

Conversion read_conversion(std::string_view text, size_t& at) {
  Conversion made;
  if (at < text.size() && text[at] == '(') {
    const size_t end = text.find(')', at);
    if (end == text.npos) refuse("a name without end in a format");
    made.name = text.substr(at + 1, end - at - 1);
    made.is_named = true;
    at = end + 1;
  }
  while (at < text.size() && std::string_view("-+ 0#").find(text[at]) != std::string_view::npos)
    made.flags += text[at++];
  made.width = number_in(text, at);
  if (at < text.size() && text[at] == '.') made.precision = number_in(text, ++at);
  if (at >= text.size()) refuse("an unfinished format");
  made.type = text[at++];
  return made;
}

std::string printed_number(const Conversion& form, const Value& value) {
  if (!value.is_number())
    refuse("%", std::string(1, form.type), " wants a number, found ", type_name(value));
  std::string digits;
  if (form.type == 'f' || form.type == 'F' || form.type == 'e' || form.type == 'g') {
    const int precision = form.precision < 0 ? 6 : static_cast<int>(form.precision);
    const std::string spec = std::string("%.*") + form.type;
    const int size = std::snprintf(nullptr, 0, spec.c_str(), precision, value.as_float());
    digits.resize(static_cast<size_t>(size) + 1);
    std::snprintf(digits.data(), digits.size(), spec.c_str(), precision, value.as_float());
    digits.pop_back();
  } else {
    double whole = value.as_float();
    if (value.is(Kind::kFloat) && (!std::isfinite(whole) || std::abs(whole) > 9e15))
      refuse("%d of this number is not supported");
    const int64_t integer = value.is(Kind::kFloat) ? static_cast<int64_t>(whole) : value.as_int();
    if (form.type == 'x' && !value.is_integral()) refuse("%x wants an integer");
    const uint64_t size =
        integer < 0 ? 0 - static_cast<uint64_t>(integer) : static_cast<uint64_t>(integer);
    char buffer[32];
    const auto end =
        std::to_chars(buffer, buffer + sizeof(buffer), size, form.type == 'x' ? 16 : 10);
    digits.assign(buffer, end.ptr);
    if (form.precision > static_cast<int64_t>(digits.size()))
      digits.insert(0, static_cast<size_t>(form.precision) - digits.size(), '0');
    if (integer < 0) digits.insert(0, "-");
  }
  const bool has_sign = digits.starts_with('-');
  if (!has_sign && form.flags.find('+') != std::string::npos)
    digits.insert(0, "+");
  else if (!has_sign && form.flags.find(' ') != std::string::npos)
    digits.insert(0, " ");
  const auto missing = form.width - static_cast<int64_t>(digits.size());
  if (missing > 0 && form.flags.find('0') != std::string::npos &&
      form.flags.find('-') == std::string::npos)
    digits.insert(std::string_view("+- ").find(digits[0]) == std::string_view::npos ? 0 : 1,
                  static_cast<size_t>(missing), '0');
  return digits;
}

std::string converted(Budget& budget, const Conversion& form, const Value& value) {
  if (form.flags.find('#') != std::string::npos) refuse("# in a format is not supported");
  std::string text;
  switch (form.type) {
    case 's':
    case 'r':
      text = form.type == 's' ? to_text(budget, value) : repr(budget, value);
      if (form.precision >= 0)
        text = to_utf8(
            std::u32string_view(code_points(text)).substr(0, static_cast<size_t>(form.precision)));
      break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'f':
    case 'F':
    case 'e':
    case 'g':
      if (value.is(Kind::kUndefined)) refuse(value.why_undefined());
      text = printed_number(form, value);
      break;
    default:
      refuse("%", printable(std::string(1, form.type)), " in a format is not supported");
  }
  const auto size = static_cast<int64_t>(length_in_points(text));
  if (form.width > size) {
    const auto missing = static_cast<size_t>(form.width - size);
    text.insert(form.flags.find('-') != std::string::npos ? text.size() : 0, missing, ' ');
  }
  return text;
}

// The next value for {} and the name or number before a colon or a dot.
class BraceFormat {
 public:
  BraceFormat(Interpreter& run, const std::string& text, const Arguments& arguments)
      : run_(run), text_(text), arguments_(arguments) {}

  std::string formatted() {
    std::string out;
    for (size_t at = 0; at < text_.size();) {
      run_.budget().step();
      const char c = text_[at];
      const bool doubled = at + 1 < text_.size() && text_[at + 1] == c;
      if ((c == '{' || c == '}') && doubled) {
        out += c;
        at += 2;
      } else if (c == '}') {
        refuse("format: a single } in the text");
      } else if (c == '{') {
        const size_t end = text_.find('}', at);
        if (end == text_.npos) refuse("format: a single { in the text");
        out += field(text_.substr(at + 1, end - at - 1));
        at = end + 1;
      } else {
        out += c;
        ++at;
      }
    }
    return out;
  }

 private:
  std::string field(const std::string& spelled) {
    if (spelled.find_first_of(":!{.[") != spelled.npos)
      refuse("format: of fields only {}, {0} and {name} are supported, found {", printable(spelled),
             "}");
    const bool numbered =
        !spelled.empty() && spelled.find_first_not_of("0123456789") == spelled.npos;
    if (!numbered && !spelled.empty()) {
      for (const auto& [name, value] : arguments_.named)
        if (name == spelled) return to_text(run_.budget(), value);
      refuse("format: there is no value named ", printable(spelled));
    }
    const int kind = numbered ? 1 : 2;
    if (kind_ != 0 && kind_ != kind) refuse("format: {} and {0} cannot be mixed");
    kind_ = kind;
    size_t index = next_;
    if (numbered) {
      const auto [end, error] =
          std::from_chars(spelled.data(), spelled.data() + spelled.size(), index);
      if (error != std::errc()) refuse("format: there is no value ", printable(spelled));
    } else {
      ++next_;
    }
    if (index >= arguments_.positional.size()) refuse("format: there is no value ", index);
    return to_text(run_.budget(), arguments_.positional[index]);
  }

  Interpreter& run_;
  const std::string& text_;
  const Arguments& arguments_;
  size_t next_ = 0;
  int kind_ = 0;  // 1: numbered, 2: in turn
};

}  // namespace

std::string percent_format(Budget& budget, const std::string& text, const Value& values) {
  std::string out;
  size_t used = 0;
  const bool is_tuple = values.is(Kind::kTuple);
  const size_t given = is_tuple ? values.items().size() : 1;
  for (size_t at = 0; at < text.size();) {
    budget.make(1);
    if (text[at] != '%') {
      out += text[at++];
      continue;
    }
    const Conversion form = read_conversion(text, ++at);
    if (form.type == '%') {
      out += '%';
      continue;
    }
    if (form.is_named) {
      if (!values.is(Kind::kDict)) refuse("%(name) wants a dict, found ", type_name(values));
      const Value* found = values.as<DictObject>().find(form.name);
      if (found == nullptr) refuse("% finds no value named ", printable(form.name));
      out += converted(budget, form, *found);
      used = given;
      continue;
    }
    if (used >= given) refuse("% wants more values than the ", given, " that there are");
    out += converted(budget, form, is_tuple ? values.items()[used] : values);
    ++used;
  }
  const bool may_be_unused = values.is(Kind::kDict) || values.is(Kind::kList) ||
                             values.is(Kind::kNamespace) || values.is(Kind::kUndefined) ||
                             values.is(Kind::kRange) || values.is(Kind::kView);
  if (used < given && !may_be_unused) refuse("% has values that the text does not use");
  return out;
}

std::string brace_format(Interpreter& interpreter, const std::string& text,
                         const Arguments& arguments) {
  return BraceFormat(interpreter, text, arguments).formatted();
}

}  // namespace octavo::jinja
