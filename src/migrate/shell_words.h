#pragma once
// Words of a bash script with its own literal assignments filled in, for read_shell.cpp alone.
// Nothing is executed. What only a running shell could know ($1, $HOME, $(command)) stays as it is
// written and marks its word unknown.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::migrate {

struct ShellField {
  std::string text;
  bool is_unknown = false;
};
using ShellFields = std::vector<ShellField>;
using ShellVariables = std::map<std::string, ShellFields, std::less<>>;

// Whole numbers, names and + - * / % ( ); nothing when it is more than that.
std::optional<int64_t> shell_arithmetic(std::string_view text, const ShellVariables& variables);

class ShellWords {
 public:
  explicit ShellWords(std::string_view text, int depth = 0) : text_(text), depth_(depth) {}

  bool at_end() const { return at_ >= text_.size(); }
  int line() const { return line_; }
  size_t position() const { return at_; }
  std::string_view text() const { return text_; }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0; }
  void skip(size_t count = 1);
  void skip_spaces();  // and joined lines, and a comment
  void skip_line();    // to the end of the line, not beyond
  bool take(std::string_view what);
  std::string take_name();  // [A-Za-z_][A-Za-z0-9_]*, "" when there is none

  // One word with its expansions: several fields where the shell would split it.
  ShellFields read_word(const ShellVariables& variables);
  // (a b c) as the fields of an array.
  ShellFields read_array(const ShellVariables& variables);

 private:
  struct Word {
    ShellFields fields;
    bool open = false;  // the last field may go on
  };
  void add(Word& word, std::string_view text, bool unknown = false) const;
  void add_fields(Word& word, const ShellFields& fields, bool quoted) const;
  void read_dollar(Word& word, const ShellVariables& variables, bool quoted);
  void read_braces(Word& word, const ShellVariables& variables, bool quoted);
  void read_double_quotes(Word& word, const ShellVariables& variables);
  size_t end_of_bracket(char open, char close) const;

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1, depth_ = 0;
};

}  // namespace octavo::migrate
