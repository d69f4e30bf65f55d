#include "migrate/read_python.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "migrate/python_tokens.h"

namespace octavo::migrate {
namespace {

using Kind = PythonToken::Kind;
using Entries = std::vector<ForeignEntry>;
constexpr int kPythonDepth = 16;
constexpr int kCallDepth = 8;         // functions that begin with another one of the file
constexpr size_t kMostLines = 20000;  // looked at in all

bool is_at_or_below(const std::string& path, const std::string& prefix) {
  return path == prefix ||
         (path.size() > prefix.size() && path[prefix.size()] == '.' && path.starts_with(prefix));
}

// The name of a class without the word that all of them end in: OptimizersContainer.Config.
std::string class_name(std::string name) {
  constexpr std::string_view kSuffix = ".Config";
  if (name.ends_with(kSuffix)) name.erase(name.size() - kSuffix.size());
  return name;
}

// One expression of a line.
class PythonValue {
 public:
  PythonValue(const PythonLine& line, size_t at, std::string_view text, const std::string& shown)
      : tokens_(line.tokens), at_(at), text_(text), shown_(shown), line_(line.number) {}

  // The expression from here to a comma, a closing bracket or the end, as entries below `path`.
  void read(const std::string& path, Entries& into, int depth = 0) {
    const size_t begin = at_, before = into.size();
    if (depth < kPythonDepth && read_literal(path, into, depth) && is_end()) return;
    into.resize(before);
    at_ = begin;
    skip_expression();
    ForeignEntry entry = new_entry(path);
    entry.values = {source(begin)};
    entry.is_code = true;
    add_entry(into, std::move(entry), shown_);
  }

  bool at_end() const { return at_ == tokens_.size(); }
  // NAME.NAME…( : the dotted name of a call, "" when there is none.
  std::string call_name() {
    const size_t begin = at_;
    std::string name = dotted_name();
    if (!name.empty() && is("(")) return name;
    at_ = begin;
    return "";
  }
  void read_arguments(const std::string& path, Entries& into, int depth) {
    ++at_;  // (
    for (int position = 0; !is(")") && !at_end(); ++position) {
      const bool named = at_ + 1 < tokens_.size() && tokens_[at_].kind == Kind::kName &&
                         tokens_[at_ + 1].text == "=" && tokens_[at_ + 1].kind == Kind::kOther;
      const std::string name = named ? tokens_[at_].text : config::print_number(position);
      if (named) at_ += 2;
      read(path.empty() ? name : path + "." + name, into, depth + 1);
      if (is(",")) ++at_;
    }
    if (!at_end()) ++at_;  // )
  }

 private:
  bool is(std::string_view text) const {
    return at_ < tokens_.size() && tokens_[at_].kind == Kind::kOther && tokens_[at_].text == text;
  }
  bool is_end() const { return at_end() || is(",") || is(")") || is("]") || is("}"); }

  ForeignEntry new_entry(const std::string& path) const {
    return {.path = path, .values = {}, .where = str(shown_, ":", line_)};
  }

  std::string source(size_t begin) const {
    if (begin >= at_) return "";
    const size_t from = tokens_[begin].begin, to = tokens_[at_ - 1].end;
    return code_text(text_.substr(from, to - from));
  }

  void skip_expression() {
    int open = 0;
    for (; at_ < tokens_.size(); ++at_) {
      if (open == 0 && is_end()) break;
      if (is("(") || is("[") || is("{")) ++open;
      if (is(")") || is("]") || is("}")) --open;
    }
  }

  std::string dotted_name() {
    std::string name;
    while (at_ < tokens_.size() && tokens_[at_].kind == Kind::kName) {
      name += tokens_[at_++].text;
      if (!is(".")) return name;
      name += '.';
      ++at_;
    }
    return "";
  }

  // A literal that is one word; nothing when it is none.
  std::optional<ForeignEntry> read_scalar(const std::string& path) {
    ForeignEntry entry = new_entry(path);
    const size_t begin = at_;
    const bool negative = is("-");
    if (negative) ++at_;
    if (at_end()) return std::nullopt;
    const PythonToken& token = tokens_[at_];
    if (token.kind == Kind::kNumber) {
      std::string digits = token.text;
      std::erase(digits, '_');
      if (!config::parse_number<double>(digits)) return std::nullopt;
      entry.values = {(negative ? "-" : "") + digits};
      ++at_;
      return entry;
    }
    at_ = begin;
    if (token.kind == Kind::kText && token.is_plain) {
      std::string text;
      for (; !at_end() && tokens_[at_].kind == Kind::kText; ++at_) {
        if (!tokens_[at_].is_plain) return std::nullopt;
        text += tokens_[at_].text;
      }
      entry.values = {std::move(text)};
      return entry;
    }
    if (token.kind != Kind::kName) return std::nullopt;
    if (token.text != "True" && token.text != "False" && token.text != "None") return std::nullopt;
    ++at_;
    entry.is_null = token.text == "None";
    if (!entry.is_null) entry.values = {token.text == "True" ? "true" : "false"};
    return entry;
  }

  bool read_literal(const std::string& path, Entries& into, int depth) {
    if (std::optional<ForeignEntry> scalar = read_scalar(path)) {
      add_entry(into, std::move(*scalar), shown_);
      return true;
    }
    if (is("[") || is("(")) return read_list(path, into, depth);
    if (is("{")) return read_dictionary(path, into, depth);
    const std::string name = call_name();
    if (name.empty()) return false;
    // Another optimizer is another training; the other classes say no more than their key.
    if (path == "optimizer") {
      ForeignEntry kind = new_entry(path + ".class");
      kind.values = {class_name(name)};
      add_entry(into, std::move(kind), shown_);
    }
    read_arguments(path, into, depth);
    return true;
  }

  // Calls in a list are named by their class, and what they are given stands below that.
  bool read_list(const std::string& path, Entries& into, int depth) {
    ForeignEntry list = new_entry(path);
    list.is_list = true;
    const size_t place = into.size();
    ++at_;
    while (!is("]") && !is(")") && !at_end()) {
      if (std::optional<ForeignEntry> scalar = read_scalar(path)) {
        list.values.push_back(scalar->is_null ? "None" : scalar->values.front());
      } else {
        const std::string name = class_name(call_name());
        if (name.empty()) return false;
        list.values.push_back(name);
        read_arguments(path + "." + name, into, depth + 1);
      }
      if (!is(",") && !is("]") && !is(")")) return false;
      if (is(",")) ++at_;
    }
    if (at_end()) return false;
    ++at_;
    add_entry(into, std::move(list), shown_);
    std::rotate(into.begin() + static_cast<std::ptrdiff_t>(place), into.end() - 1, into.end());
    return true;
  }

  bool read_dictionary(const std::string& path, Entries& into, int depth) {
    ++at_;
    while (!is("}") && !at_end()) {
      const std::optional<ForeignEntry> key = read_scalar("");
      if (!key || key->is_null || !is(":")) return false;
      ++at_;
      read(path + "." + key->values.front(), into, depth + 1);
      if (is(",")) ++at_;
    }
    if (at_end()) return false;
    ++at_;
    return true;
  }

  const std::vector<PythonToken>& tokens_;
  size_t at_;
  std::string_view text_;
  const std::string& shown_;
  int line_;
};

// The file: what its names and functions make.
class PythonModule {
 public:
  PythonModule(std::string_view text, const std::string& shown)
      : text_(text), shown_(shown), lines_(python_lines(text, shown)) {
    for (size_t i = 0; i < lines_.size(); ++i) {
      const PythonLine& line = lines_[i];
      if (line.indent > 0 || line.tokens.size() < 3) continue;
      if (line.tokens[0].text == "def")
        makers_[line.tokens[1].text] = {i + 1, end_of_block(i)};
      else if (line.tokens[1].text == "=" && line.tokens[0].kind == Kind::kName)
        makers_[line.tokens[0].text] = {i, i + 1};
    }
  }

  std::vector<std::string> configurations() {
    std::vector<std::string> names;
    for (const auto& [name, unused] : makers_)
      if (looks_like_one(make(name, 0))) names.push_back(name);
    return names;
  }

  Entries make(const std::string& name, int depth) {
    Entries result;
    std::map<std::string, Entries> locals;
    const auto [begin, end] = makers_.at(name);
    const size_t indent = begin < end ? lines_[begin].indent : 0;
    for (size_t i = begin; i < end; ++i) {
      if (++looked_at_ > kMostLines)
        fail(ExitCode::kUsage, "config", shown_, ": wanted at most ", kMostLines,
             " lines of functions, found more; is this a configuration?");
      if (lines_[i].indent > indent) continue;  // of the statement above, which was listed
      read_statement(lines_[i], depth, locals, result);
    }
    return result;
  }

  bool has(const std::string& name) const { return makers_.contains(name); }

 private:
  size_t end_of_block(size_t header) const {
    size_t i = header + 1;
    while (i < lines_.size() && lines_[i].indent > lines_[header].indent) ++i;
    return i;
  }

  static bool looks_like_one(const Entries& entries) {
    return std::ranges::any_of(entries, [](const ForeignEntry& entry) {
      return entry.path.starts_with("training.") || entry.path == "model.flavor" ||
             entry.path.starts_with("model_spec");
    });
  }

  void read_statement(const PythonLine& line, int depth, std::map<std::string, Entries>& locals,
                      Entries& result) {
    const std::vector<PythonToken>& tokens = line.tokens;
    const std::string& first = tokens[0].text;
    if (tokens[0].kind == Kind::kText || first == "import" || first == "from" || first == "pass")
      return;
    if (first == "return" && tokens.size() > 1) {
      if (tokens.size() == 2 && locals.contains(tokens[1].text))
        append(result, locals[tokens[1].text]);
      else if (!read_object(line, 1, depth, result))
        list_code(line, result);
      return;
    }
    if (tokens.size() > 2 && tokens[1].text == "=" && tokens[0].kind == Kind::kName) {
      Entries made;
      const bool understood = read_object(line, 2, depth, made);
      if (line.indent == 0 && understood) return append(result, made);
      if (understood) {
        locals[first] = std::move(made);
        return;
      }
    }
    if (locals.contains(first) && tokens.size() > 2 && tokens[1].text == ".")
      if (read_change(line, locals[first])) return;
    list_code(line, result);
  }

  // Class(…) or function(), as a whole configuration.
  bool read_object(const PythonLine& line, size_t at, int depth, Entries& into) {
    PythonValue value(line, at, text_, shown_);
    const std::string name = value.call_name();
    if (name.empty()) return false;
    if (makers_.contains(name)) {
      if (depth == kCallDepth) return false;
      append(into, make(name, depth + 1));
      return true;
    }
    value.read_arguments("", into, 0);
    return value.at_end();
  }

  // config.a.b = value
  bool read_change(const PythonLine& line, Entries& entries) const {
    size_t at = 1;
    std::string path;
    for (; at + 1 < line.tokens.size() && line.tokens[at].text == "."; at += 2)
      path += (path.empty() ? "" : ".") + line.tokens[at + 1].text;
    if (at + 1 >= line.tokens.size() || line.tokens[at].text != "=" || path.empty()) return false;
    std::erase_if(entries,
                  [&](const ForeignEntry& entry) { return is_at_or_below(entry.path, path); });
    PythonValue(line, at + 1, text_, shown_).read(path, entries);
    return true;
  }

  void append(Entries& into, const Entries& more) const {
    for (const ForeignEntry& entry : more) add_entry(into, entry, shown_);
  }

  void list_code(const PythonLine& line, Entries& into) const {
    ForeignEntry entry{
        .path = str("line ", line.number), .values = {}, .where = str(shown_, ":", line.number)};
    const size_t from = line.tokens.front().begin, to = line.tokens.back().end;
    entry.values = {code_text(text_.substr(from, to - from))};
    entry.is_code = true;
    add_entry(into, std::move(entry), shown_);
  }

  std::string_view text_;
  const std::string& shown_;
  std::vector<PythonLine> lines_;
  std::map<std::string, std::pair<size_t, size_t>> makers_;  // name: its lines
  size_t looked_at_ = 0;
};

}  // namespace

std::vector<ForeignEntry> python_entries(std::string_view text, const std::string& shown,
                                         const std::string& wanted) {
  PythonModule module(text, shown);
  std::string name = wanted;
  if (!name.empty() && !module.has(name)) name.clear();
  if (name.empty()) {
    std::vector<std::string> names = module.configurations();
    const size_t count = names.size();
    if (count == 1 && wanted.empty()) {
      name = names.front();
    } else {
      for (std::string& one : names) one = shown_text(one);
      if (count > 24) names.resize(24);
      fail(ExitCode::kUsage, "config", shown, ": wanted ",
           wanted.empty() ? "one configuration" : "a configuration named " + shown_text(wanted),
           ", found ", count == 0 ? "none that can be read without running it" : join(names, ", "),
           count > 24 ? str(" and ", count - 24, " others") : "",
           count == 0 ? "; write its values into a YAML of octavo's keys"
                      : "; write " + shown + ":NAME");
    }
  }
  Entries entries = module.make(name, 0);
  ForeignEntry maker{.path = "config_name", .values = {name}, .where = shown};
  entries.insert(entries.begin(), std::move(maker));
  return entries;
}

}  // namespace octavo::migrate
