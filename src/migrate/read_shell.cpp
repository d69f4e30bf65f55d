#include "migrate/read_shell.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "migrate/shell_words.h"

namespace octavo::migrate {
namespace {

constexpr size_t kMostStatements = 20000;
constexpr size_t kMostOthers = 100;  // that are listed one by one

// --name value… as entries; the last of a name counts, as argparse has it.
std::vector<ForeignEntry> flags_of(const ShellFields& fields, const std::string& where,
                                   const std::string& shown) {
  std::vector<ForeignEntry> entries;
  const auto is_flag = [](const std::string& text) {
    return text.starts_with("--") && text.size() > 2;
  };
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!is_flag(fields[i].text)) continue;
    std::string name = fields[i].text.substr(2);
    ForeignEntry entry{.path = {}, .values = {}, .where = where};
    entry.is_code = fields[i].is_unknown;
    if (const size_t equals = name.find('='); equals != name.npos) {
      entry.values.push_back(name.substr(equals + 1));
      name.erase(equals);
    } else {
      for (; i + 1 < fields.size() && !is_flag(fields[i + 1].text); ++i) {
        entry.values.push_back(fields[i + 1].text);
        entry.is_code |= fields[i + 1].is_unknown;
      }
    }
    entry.path = name;
    entry.is_list = entry.values.size() > 1;
    if (entry.values.empty()) entry.values = {"true"};
    std::erase_if(entries, [&](const ForeignEntry& before) { return before.path == name; });
    add_entry(entries, std::move(entry), shown);
  }
  return entries;
}

// The script as it would run, as far as that can be known.
class ShellReader {
 public:
  ShellReader(std::string_view text, const std::string& shown) : words_(text), shown_(shown) {}

  ShellScript read() {
    for (size_t count = 0; next_statement(); ++count) {
      if (count == kMostStatements)
        fail(ExitCode::kUsage, "config", shown_, ": wanted at most ", kMostStatements,
             " commands, found more; is this a launch script?");
      read_statement();
    }
    if (script_.program.empty()) take_lists();
    return std::move(script_);
  }

 private:
  // A block that is not (or only once) gone through: if, loops, functions.
  struct Block {
    bool active = true, was_taken = false;
    std::string_view end;  // the word that ends it
  };

  bool is_active() const {
    return std::ranges::all_of(blocks_, [](const Block& block) { return block.active; });
  }

  bool next_statement() {
    for (;;) {
      read_batch_line();
      words_.skip_spaces();
      if (words_.at_end()) return false;
      if (std::string_view("\n;|&)").find(words_.peek()) == std::string_view::npos) return true;
      if (words_.peek() == '\n') skip_here_document();
      words_.skip();
    }
  }

  // #SBATCH --nodes=4 at the beginning of a line.
  void read_batch_line() {
    constexpr std::string_view kBatch = "#SBATCH";
    if (!words_.text().substr(words_.position()).starts_with(kBatch)) return;
    const int line = words_.line();
    const size_t begin = words_.position() + kBatch.size();
    words_.skip_line();
    ShellWords rest(words_.text().substr(begin, words_.position() - begin));
    ShellFields fields;
    for (rest.skip_spaces(); !rest.at_end(); rest.skip_spaces()) {
      const size_t before = rest.position();
      for (ShellField& field : rest.read_word({})) fields.push_back(std::move(field));
      if (rest.position() == before) rest.skip();
    }
    for (ForeignEntry& entry : flags_of(fields, str(shown_, ":", line), shown_))
      set_entry(script_.launcher, std::move(entry));
  }

  void set_entry(std::vector<ForeignEntry>& into, ForeignEntry entry) const {
    std::erase_if(into, [&](const ForeignEntry& before) { return before.path == entry.path; });
    add_entry(into, std::move(entry), shown_);
  }

  void list_other(int line, size_t begin, std::string_view end_mark = "") {
    if (script_.others.size() == kMostOthers) return;
    const std::string_view text = words_.text().substr(begin, words_.position() - begin);
    ForeignEntry entry{.path = str("line ", line), .values = {}, .where = str(shown_, ":", line)};
    entry.values = {code_text(text) + std::string(end_mark)};
    entry.is_code = true;
    set_entry(script_.others, std::move(entry));
  }

  void read_statement() {
    const int line = words_.line();
    const size_t begin = words_.position();
    if (read_assignments(line)) return;
    ShellFields fields;
    bool is_first = true;
    while (!words_.at_end()) {
      words_.skip_spaces();
      const char c = words_.peek();
      if (words_.at_end() || c == '\n' || c == ';' || c == '&' || c == '|' || c == ')') break;
      if (c == '<' || c == '>') {
        read_redirection();
        continue;
      }
      if (c == '(') {
        words_.skip();
        continue;
      }
      const size_t before = words_.position();
      const ShellFields more = words_.read_word(variables_);
      if (words_.position() == before) words_.skip();
      if (is_first && more.size() == 1 && read_keyword(more[0].text, line, begin)) return;
      is_first = false;
      const bool redirects = words_.peek() == '>' || words_.peek() == '<';
      if (redirects && more.size() == 1 && config::parse_number<int64_t>(more[0].text))
        continue;  // 2>&1
      fields.insert(fields.end(), more.begin(), more.end());
    }
    if (words_.peek() == '&' || words_.peek() == '|') words_.skip();
    if (!fields.empty()) read_command(fields, line, begin);
  }

  void read_redirection() {
    const bool here = words_.take("<<");
    if (here) {
      words_.take("-");
      words_.skip_spaces();
      const ShellFields mark = words_.read_word({});
      if (!mark.empty()) here_mark_ = mark[0].text;
      return;
    }
    while (std::string_view("<>&").find(words_.peek()) != std::string_view::npos &&
           !words_.at_end())
      words_.skip();
    words_.skip_spaces();
    words_.read_word(variables_);
  }

  void skip_here_document() {
    if (here_mark_.empty()) return;
    words_.skip();
    while (!words_.at_end()) {
      const size_t begin = words_.position();
      words_.skip_line();
      const std::string_view line = words_.text().substr(begin, words_.position() - begin);
      if (trim(line) == here_mark_) break;
      words_.skip();
    }
    here_mark_.clear();
  }

  // NAME=value, NAME+=(a b), export NAME=value; false when the statement is another one.
  bool read_assignments(int line) {
    bool any = false, declares = false, exported = false;
    for (;;) {
      words_.skip_spaces();
      ShellWords ahead = words_;
      std::string name = ahead.take_name();
      if (name == "export" || name == "local" || name == "readonly" || name == "declare") {
        if (ahead.peek() != ' ' && ahead.peek() != '\t') return any;
        words_ = ahead;
        exported = name == "export";
        any = declares = true;
        continue;
      }
      const bool more = ahead.take("+=");
      if (declares && !name.empty() && !more && ahead.peek() != '=') {
        words_ = ahead;  // export NAME
        continue;
      }
      if (name.empty() || (!more && !ahead.take("="))) return any && is_statement_end();
      words_ = ahead;
      assign(name, more, exported, line);
      any = true;
    }
  }

  bool is_statement_end() {
    if (words_.at_end() || std::string_view("\n;&|").find(words_.peek()) != std::string_view::npos)
      return true;
    return false;  // VAR=1 command …: the command is read next
  }

  void assign(const std::string& name, bool more, bool exported, int line) {
    ShellFields fields;
    if (words_.peek() == '(') {
      fields = words_.read_array(variables_);
    } else {
      // Not split: one text, whatever it holds.
      const ShellFields parts = words_.read_word(variables_);
      ShellField whole;
      for (size_t i = 0; i < parts.size(); ++i) {
        whole.text += (i > 0 ? " " : "") + parts[i].text;
        whole.is_unknown |= parts[i].is_unknown;
      }
      fields = {std::move(whole)};
    }
    if (!is_active()) return;
    ShellFields& variable = variables_[name];
    if (variables_.size() > 1000)
      fail(ExitCode::kUsage, "config", shown_, ": wanted at most 1000 variables, found more");
    if (!more) variable.clear();
    const bool joins = more && fields.size() == 1 && variable.size() == 1;
    if (joins)
      variable[0].text += fields[0].text, variable[0].is_unknown |= fields[0].is_unknown;
    else
      variable.insert(variable.end(), fields.begin(), fields.end());
    size_t bytes = 0;
    for (const ShellField& field : variable) bytes += field.text.size() + 1;
    if (bytes > (size_t{1} << 17))
      fail(ExitCode::kUsage, "config", shown_, ":", line, ": wanted variables of at most 128 KiB");
    if (!exported) return;
    ForeignEntry entry{.path = "export " + name, .values = {}, .where = str(shown_, ":", line)};
    entry.values = {variable.empty() ? "" : variable[0].text};
    set_entry(script_.exports, std::move(entry));
  }

  // Words that the shell keeps for itself. True when the statement was one of them.
  bool read_keyword(const std::string& word, int line, size_t begin) {
    if (word == "if") {
      push_if(line, begin);
    } else if (word == "elif" && !blocks_.empty()) {
      const bool done = blocks_.back().was_taken;
      blocks_.pop_back();
      push_if(line, begin);
      if (done) blocks_.back() = {false, true, "fi"};
    } else if (word == "else" && !blocks_.empty()) {
      Block& block = blocks_.back();
      block.active = !block.was_taken;
      block.was_taken = true;
    } else if (word == "for" || word == "while" || word == "until" || word == "case") {
      words_.skip_line();
      if (is_active()) list_other(line, begin, " … is not gone through");
      blocks_.push_back({false, true, word == "case" ? "esac" : "done"});
    } else if (!blocks_.empty() && word == blocks_.back().end) {
      blocks_.pop_back();
    } else if (word == "function" || word == "set") {
      words_.skip_line();
    } else {
      return word == "then" || word == "do" || word == "{" || word == "}" || word == "fi" ||
             word == "done" || word == "esac";
    }
    return true;
  }

  void push_if(int line, size_t begin) {
    const std::optional<bool> holds = condition();
    const bool outer = is_active();
    if (!holds && outer)
      list_other(line, begin, " … cannot be known: none of its branches is read");
    blocks_.push_back({holds.value_or(false) && outer, holds.value_or(true) || !outer, "fi"});
    if (blocks_.size() > 64)
      fail(ExitCode::kUsage, "config", shown_, ":", line, ": wanted at most 64 nested blocks");
  }

  // [[ … ]] || [ … ] && …, up to then.
  std::optional<bool> condition() {
    std::optional<bool> result = one_test();
    for (;;) {
      words_.skip_spaces();
      const bool either = words_.take("||"), both = !either && words_.take("&&");
      if (!either && !both) break;
      const std::optional<bool> next = one_test();
      if (either)
        result = result.value_or(false) || next.value_or(false)
                     ? std::optional<bool>(true)
                     : (result && next ? std::optional<bool>(false) : std::nullopt);
      else
        result = result && next ? std::optional<bool>(*result && *next) : std::nullopt;
    }
    // What else stands before `then` was not understood.
    words_.skip_spaces();
    if (words_.peek() != ';' && words_.peek() != '\n') result.reset();
    while (!words_.at_end() && words_.peek() != ';' && words_.peek() != '\n') words_.skip();
    return result;
  }

  std::optional<bool> one_test() {
    words_.skip_spaces();
    const std::string_view close = words_.take("[[") ? "]]" : words_.take("[") ? "]" : "";
    if (close.empty()) return std::nullopt;
    ShellFields fields;
    for (words_.skip_spaces(); !words_.take(close); words_.skip_spaces()) {
      if (words_.at_end() || words_.peek() == '\n') return std::nullopt;
      const size_t before = words_.position();
      const ShellFields word = words_.read_word(variables_);
      if (words_.position() == before) return std::nullopt;  // < > ( ) && inside
      if (word.empty())
        fields.push_back({});
      else
        fields.insert(fields.end(), word.begin(), word.end());
    }
    return judged(fields);
  }

  static std::optional<bool> judged(const ShellFields& fields) {
    if (std::ranges::any_of(fields, &ShellField::is_unknown)) return std::nullopt;
    if (fields.size() == 2 && fields[0].text == "-z") return fields[1].text.empty();
    if (fields.size() == 2 && fields[0].text == "-n") return !fields[1].text.empty();
    if (fields.size() != 3) return std::nullopt;
    const std::string &left = fields[0].text, &sign = fields[1].text, &right = fields[2].text;
    if (sign == "==" || sign == "=") return left == right;
    if (sign == "!=") return left != right;
    const auto a = config::parse_number<int64_t>(left), b = config::parse_number<int64_t>(right);
    if (!a || !b) return std::nullopt;
    if (sign == "-eq") return *a == *b;
    if (sign == "-ne") return *a != *b;
    if (sign == "-gt") return *a > *b;
    if (sign == "-ge") return *a >= *b;
    if (sign == "-lt") return *a < *b;
    if (sign == "-le") return *a <= *b;
    return std::nullopt;
  }

  // A command in one word ("$CMD", bash -c "…") is split as the inner shell would.
  static ShellFields split_commands(const ShellFields& fields) {
    ShellFields out;
    for (const ShellField& field : fields) {
      if (field.text.find(".py ") == field.text.npos) {
        out.push_back(field);
        continue;
      }
      std::string text = field.text;
      std::ranges::replace(text, '\n', ' ');
      for (const std::string& part : split(text, ' '))
        if (!trim(part).empty()) out.push_back({std::string(trim(part)), field.is_unknown});
    }
    return out;
  }

  void read_command(const ShellFields& given, int line, size_t begin) {
    if (!is_active()) return;
    const ShellFields fields = split_commands(given);
    const auto script = std::ranges::find_if(
        fields, [](const ShellField& field) { return field.text.ends_with(".py"); });
    if (script == fields.end()) {
      static const std::set<std::string_view> kHarmless = {"mkdir",  "echo",  "cd",    "exit",
                                                           "tee",    "cat",   "sleep", "wait",
                                                           "ulimit", "unset", "module"};
      if (!kHarmless.contains(fields.front().text)) list_other(line, begin);
      return;
    }
    const std::string where = str(shown_, ":", line);
    std::vector<ForeignEntry> flags = flags_of({script + 1, fields.end()}, where, shown_);
    if (!script_.program.empty() && flags.size() < script_.flags.size()) return;
    script_.program = script->text;
    script_.flags = std::move(flags);
    for (ForeignEntry& entry : flags_of({fields.begin(), script}, where, shown_))
      set_entry(script_.launcher, std::move(entry));
  }

  // A part of a script that only defines lists of arguments: all of them.
  void take_lists() {
    for (const auto& [name, fields] : variables_) {
      ShellFields parts;
      for (const ShellField& field : fields)
        for (const std::string& part : split(field.text, ' '))
          if (!trim(part).empty()) parts.push_back({part, field.is_unknown});
      if (parts.empty() || !parts[0].text.starts_with("--")) continue;
      for (ForeignEntry& entry : flags_of(parts, str(shown_, ": ", name), shown_))
        set_entry(script_.flags, std::move(entry));
    }
  }

  ShellWords words_;
  const std::string& shown_;
  ShellVariables variables_;
  std::vector<Block> blocks_;
  std::string here_mark_;
  ShellScript script_;
};

}  // namespace

ShellScript read_shell(std::string_view text, const std::string& shown) {
  return ShellReader(text, shown).read();
}

std::vector<ForeignEntry> argument_entries(std::string_view text, const std::string& shown) {
  ShellWords words(text);
  ShellFields fields;
  while (!words.at_end()) {
    words.skip_spaces();
    const size_t before = words.position();
    for (ShellField& field : words.read_word({})) fields.push_back(std::move(field));
    if (words.position() == before) words.skip();
  }
  return flags_of(fields, shown, shown);
}

}  // namespace octavo::migrate
