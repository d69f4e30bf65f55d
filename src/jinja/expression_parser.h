#pragma once
// The expressions of templates.

#include <initializer_list>
#include <string_view>
#include <vector>

#include "jinja/lexer.h"
#include "jinja/tree.h"

namespace octavo::jinja {

// Tokens one by one.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token next() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view sign);
  void expect_name(std::string_view name);
  void expect_operator(std::string_view sign);
  void expect(Token::Type type, std::string_view what);
  std::string expect_any_name();
  [[noreturn]] void unexpected(std::string_view wanted) const;
  template <typename... Parts>
  [[noreturn]] void complain(const Parts&... parts) const {
    refuse("line ", current().line, ": ", parts...);
  }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}
  ExprPtr expression(bool with_condition = true);
  // One expression, or several with commas between them. `end_name` ends a tuple.
  ExprPtr tuple(bool with_condition = true, std::string_view end_name = "",
                bool in_parentheses = false);
  ExprPtr target(bool with_namespace, std::string_view end_name = "");
  // `| name(…) | …` applied to `input`, which may be null; `inline_first`: the first without its |.
  ExprPtr filters(ExprPtr input, bool inline_first);

  // Expressions and blocks in each other.
  void enter();
  void leave() { --depth_; }

 private:
  ExprPtr make(Expr::Kind kind) const;
  ExprPtr disjunction();
  ExprPtr conjunction();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter);
  ExprPtr primary(bool with_namespace);
  ExprPtr name_or_literal(bool with_namespace);
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr node);
  ExprPtr filter_or_test(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr slice_or_expression();
  ExprPtr call(ExprPtr node);
  ExprPtr test(ExprPtr node);
  void arguments(Expr& call);
  bool ends_tuple(std::string_view end_name) const;
  bool begins_test_argument() const;

  TokenStream& tokens_;
  int depth_ = 0;
};

}  // namespace octavo::jinja
