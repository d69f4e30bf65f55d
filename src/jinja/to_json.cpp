// json.dumps, as the filter tojson of transformers calls it.
#include <algorithm>
#include <cmath>

#include "jinja/filters.h"
#include "jinja/python_text.h"

namespace octavo::jinja {
namespace {

struct Style {
  bool ascii = false, sort_keys = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ", key_separator = ": ";
};

void append_escape(uint32_t unit, std::string& out) {
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += "0123456789abcdef"[(unit >> shift) & 15];
}

std::string json_text(std::string_view text, bool ascii) {
  std::string out = "\"";
  constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kShortLetters = "\"\\bfnrt";
  for (const char32_t point : code_points(text)) {
    const size_t known = point < 0x80 ? kShort.find(static_cast<char>(point)) : kShort.npos;
    if (known != kShort.npos) {
      out += {'\\', kShortLetters[known]};
    } else if (point < 0x20 || (ascii && point > 0x7E && point < 0x10000)) {
      append_escape(point, out);
    } else if (ascii && point >= 0x10000) {
      append_escape(0xD800 + ((point - 0x10000) >> 10), out);
      append_escape(0xDC00 + ((point - 0x10000) & 0x3FF), out);
    } else {
      out += to_utf8({&point, 1});
    }
  }
  return out + '"';
}

class JsonWriter {
 public:
  JsonWriter(Interpreter& run, const Style& style) : run_(run), style_(style) {}
  std::string take() { return std::move(out_); }

  void write(const Value& value, int level) {
    run_.budget().make(8);
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        break;
      case Kind::kBool:
        out_ += value.as_bool() ? "true" : "false";
        break;
      case Kind::kInt:
        out_ += std::to_string(value.as_int());
        break;
      case Kind::kFloat:
        out_ += float_json(value.as_float());
        break;
      case Kind::kString:
        run_.budget().make(value.as_text().size() * 6);
        out_ += json_text(value.as_text(), style_.ascii);
        break;
      case Kind::kList:
      case Kind::kTuple:
        list(value.items(), level);
        break;
      case Kind::kDict:
        dict(value.as<DictObject>(), level);
        break;
      default:
        refuse("tojson is not for ", type_name(value));
    }
  }

 private:
  static std::string float_json(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_text(value);
  }

  void new_line(int level) {
    if (!style_.indent) return;
    run_.budget().make(style_.indent->size() * static_cast<uint64_t>(level) + 1);
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += *style_.indent;
  }

  void list(const std::vector<Value>& items, int level) {
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) separator();
      new_line(level + 1);
      write(items[i], level + 1);
    }
    if (!items.empty()) new_line(level);
    out_ += ']';
  }

  void separator() {
    run_.budget().make(style_.item_separator.size());
    out_ += style_.item_separator;
  }

  static std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.as_text();
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return key.as_bool() ? "true" : "false";
      case Kind::kInt:
        return std::to_string(key.as_int());
      case Kind::kFloat:
        return float_json(key.as_float());
      default:
        refuse("tojson wants keys of text, found ", type_name(key));
    }
  }

  void dict(const DictObject& dict, int level) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    run_.budget().make_items(entries.size());
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return compare(run_.budget(), a->first, b->first, "<") == -1;
      });
    out_ += '{';
    bool first = true;
    for (const auto* entry : entries) {
      if (!first) separator();
      first = false;
      new_line(level + 1);
      const std::string key = key_text(entry->first);
      run_.budget().make(key.size() * 6 + style_.key_separator.size());
      out_ += json_text(key, style_.ascii) + style_.key_separator;
      write(entry->second, level + 1);
    }
    if (!entries.empty()) new_line(level);
    out_ += '}';
  }

  Interpreter& run_;
  const Style& style_;
  std::string out_;
};

}  // namespace

Value to_json(Interpreter& run, const Value& input, Arguments& arguments) {
  const auto bound =
      bind_arguments("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  const auto is_given = [&](size_t i) {
    return !bound[i].is(Kind::kMissing) && !bound[i].is(Kind::kNone);
  };
  Style style;
  style.ascii = is_given(0) && truth(bound[0]);
  style.sort_keys = is_given(3) && truth(bound[3]);
  if (is_given(1)) {
    if (bound[1].is_text()) {
      style.indent = bound[1].as_text();
    } else {
      constexpr int64_t kWidestIndent = 1000;
      if (!bound[1].is_integral() || bound[1].as_int() > kWidestIndent)
        refuse("tojson wants an indent of at most ", kWidestIndent);
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(bound[1].as_int(), 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (is_given(2)) {
    const auto separators = iterate(run.budget(), bound[2]);
    if (separators.size() != 2 || !separators[0].is_text() || !separators[1].is_text())
      refuse("tojson wants two separators");
    style.item_separator = separators[0].as_text();
    style.key_separator = separators[1].as_text();
  }
  JsonWriter writer(run, style);
  writer.write(input, 0);
  return run.text(writer.take());
}

}  // namespace octavo::jinja
