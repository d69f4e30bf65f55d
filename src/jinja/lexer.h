#pragma once
// The text of a template as tokens, with white space cut as transformers configures Jinja: one line
// end behind a tag goes away (trim_blocks), and so does what stands before it on its line
// (lstrip_blocks).

#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace octavo::jinja {

struct Token {
  enum class Type {
    kData,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kNumber,
    kOperator,
    kEnd
  };
  Type type = Type::kEnd;
  std::string text;  // of data, a name, a string's value or an operator
  Value number;
  int line = 0;

  bool is(Type wanted, std::string_view wanted_text) const {
    return type == wanted && text == wanted_text;
  }
  bool is_name(std::string_view name) const { return is(Type::kName, name); }
  bool is_operator(std::string_view sign) const { return is(Type::kOperator, sign); }
};

// Ends with a token of type kEnd. `source` must be valid UTF-8.
std::vector<Token> tokenize(std::string_view source);

}  // namespace octavo::jinja
