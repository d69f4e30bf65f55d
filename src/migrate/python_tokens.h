#pragma once
// Python's text as logical lines of tokens, for read_python.cpp alone.

#include <string>
#include <string_view>
#include <vector>

namespace octavo::migrate {

struct PythonToken {
  enum class Kind { kName, kNumber, kText, kOther };
  Kind kind = Kind::kOther;
  std::string text;           // of kText: the string's value
  bool is_plain = true;       // of kText: no f-string, no bytes
  size_t begin = 0, end = 0;  // in the file
};

struct PythonLine {
  int number = 0;  // of its first token, from 1
  size_t indent = 0;
  std::vector<PythonToken> tokens;
};

// Brackets join lines. At most 100000 tokens; brackets that do not close are refused.
std::vector<PythonLine> python_lines(std::string_view text, const std::string& shown);

}  // namespace octavo::migrate
