#include "jinja/expression_parser.h"

#include "base/printable.h"

namespace octavo::jinja {
namespace {

using Type = Token::Type;
constexpr int kMostNestedExpressions = 100;

std::string described(const Token& token) {
  switch (token.type) {
    case Type::kEnd:
      return "the end of the template";
    case Type::kVariableEnd:
      return "}}";
    case Type::kBlockEnd:
      return "%}";
    case Type::kNumber:
      return "a number";
    case Type::kString:
      return "a string";
    default:
      return "'" + printable(token.text) + "'";
  }
}

struct Sign {
  std::string_view text;
  Operator meaning;
};
constexpr Sign kComparisons[] = {{"==", Operator::kEq}, {"!=", Operator::kNe},
                                 {"<", Operator::kLt},  {"<=", Operator::kLe},
                                 {">", Operator::kGt},  {">=", Operator::kGe}};
constexpr Sign kSums[] = {{"+", Operator::kAdd}, {"-", Operator::kSub}};
constexpr Sign kProducts[] = {{"*", Operator::kMul},
                              {"/", Operator::kDiv},
                              {"//", Operator::kFloorDiv},
                              {"%", Operator::kMod}};

template <size_t N>
const Sign* sign_of(const Token& token, const Sign (&signs)[N]) {
  for (const Sign& sign : signs)
    if (token.is_operator(sign.text)) return &sign;
  return nullptr;
}

bool can_assign(const Expr& target) {
  if (target.kind == Expr::Kind::kName) {
    for (const char* word : {"true", "false", "none", "True", "False", "None"})
      if (target.text == word) return false;
    return true;
  }
  if (target.kind == Expr::Kind::kNamespaceRef) return true;
  if (target.kind != Expr::Kind::kTuple) return false;
  for (const ExprPtr& item : target.operands)
    if (!can_assign(*item)) return false;
  return true;
}

}  // namespace

bool TokenStream::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  next();
  return true;
}
bool TokenStream::skip_operator(std::string_view sign) {
  if (!current().is_operator(sign)) return false;
  next();
  return true;
}
void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected(name);
}
void TokenStream::expect_operator(std::string_view sign) {
  if (!skip_operator(sign)) unexpected(sign);
}
void TokenStream::expect(Type type, std::string_view what) {
  if (current().type != type) unexpected(what);
  next();
}
std::string TokenStream::expect_any_name() {
  if (current().type != Type::kName) unexpected("a name");
  return next().text;
}
void TokenStream::unexpected(std::string_view wanted) const {
  complain("wanted ", wanted, ", found ", described(current()));
}

void ExpressionParser::enter() {
  if (++depth_ > kMostNestedExpressions)
    tokens_.complain("wanted at most ", kMostNestedExpressions,
                     " expressions and blocks in each other, found more");
}

ExprPtr ExpressionParser::make(Expr::Kind kind) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = tokens_.current().line;
  return node;
}

ExprPtr ExpressionParser::expression(bool with_condition) {
  enter();
  ExprPtr left = disjunction();
  while (with_condition && tokens_.current().is_name("if")) {
    ExprPtr node = make(Expr::Kind::kCond);
    tokens_.next();
    node->add(disjunction());
    node->add(std::move(left));
    node->add(tokens_.skip_name("else") ? expression() : nullptr);
    left = std::move(node);
  }
  leave();
  return left;
}

ExprPtr ExpressionParser::disjunction() {
  ExprPtr left = conjunction();
  while (tokens_.current().is_name("or")) {
    ExprPtr node = make(Expr::Kind::kOr);
    tokens_.next();
    node->add(std::move(left));
    node->add(conjunction());
    left = std::move(node);
  }
  return left;
}

ExprPtr ExpressionParser::conjunction() {
  ExprPtr left = negation();
  while (tokens_.current().is_name("and")) {
    ExprPtr node = make(Expr::Kind::kAnd);
    tokens_.next();
    node->add(std::move(left));
    node->add(negation());
    left = std::move(node);
  }
  return left;
}

ExprPtr ExpressionParser::negation() {
  if (!tokens_.current().is_name("not")) return comparison();
  enter();
  ExprPtr node = make(Expr::Kind::kNot);
  tokens_.next();
  node->add(negation());
  leave();
  return node;
}

ExprPtr ExpressionParser::comparison() {
  ExprPtr left = sum();
  ExprPtr node;
  while (true) {
    Operator meaning = Operator::kIn;
    if (const Sign* sign = sign_of(tokens_.current(), kComparisons)) {
      meaning = sign->meaning;
    } else if (tokens_.current().is_name("not") && tokens_.ahead().is_name("in")) {
      meaning = Operator::kNotIn;
      tokens_.next();
    } else if (!tokens_.current().is_name("in")) {
      return node ? std::move(node) : std::move(left);
    }
    if (!node) {
      node = make(Expr::Kind::kCompare);
      node->add(std::move(left));
    }
    tokens_.next();
    node->operators.push_back(meaning);
    node->add(sum());
  }
}

ExprPtr ExpressionParser::sum() {
  ExprPtr left = concatenation();
  while (const Sign* sign = sign_of(tokens_.current(), kSums)) {
    ExprPtr node = make(Expr::Kind::kBinary);
    tokens_.next();
    node->operators.push_back(sign->meaning);
    node->add(std::move(left));
    node->add(concatenation());
    left = std::move(node);
  }
  return left;
}

ExprPtr ExpressionParser::concatenation() {
  ExprPtr left = product();
  if (!tokens_.current().is_operator("~")) return left;
  ExprPtr node = make(Expr::Kind::kConcat);
  node->add(std::move(left));
  while (tokens_.skip_operator("~")) node->add(product());
  return node;
}

ExprPtr ExpressionParser::product() {
  ExprPtr left = power();
  while (const Sign* sign = sign_of(tokens_.current(), kProducts)) {
    ExprPtr node = make(Expr::Kind::kBinary);
    tokens_.next();
    node->operators.push_back(sign->meaning);
    node->add(std::move(left));
    node->add(power());
    left = std::move(node);
  }
  return left;
}

ExprPtr ExpressionParser::power() {
  ExprPtr left = unary(true);
  while (tokens_.current().is_operator("**")) {
    ExprPtr node = make(Expr::Kind::kBinary);
    tokens_.next();
    node->operators.push_back(Operator::kPow);
    node->add(std::move(left));
    node->add(unary(true));
    left = std::move(node);
  }
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filter) {
  enter();
  ExprPtr node;
  const bool minus = tokens_.current().is_operator("-");
  if (minus || tokens_.current().is_operator("+")) {
    node = make(minus ? Expr::Kind::kNegative : Expr::Kind::kPositive);
    tokens_.next();
    node->add(unary(false));
  } else {
    node = primary(false);
  }
  node = postfix(std::move(node));
  if (with_filter) node = filter_or_test(std::move(node));
  leave();
  return node;
}

ExprPtr ExpressionParser::name_or_literal(bool with_namespace) {
  const std::string name = tokens_.current().text;
  ExprPtr node = make(Expr::Kind::kConst);
  tokens_.next();
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    node->constant = Value::boolean(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    node->constant = Value::none();
  } else if (with_namespace && tokens_.skip_operator(".")) {
    node->kind = Expr::Kind::kNamespaceRef;
    node->text = name;
    node->attribute = tokens_.expect_any_name();
  } else {
    node->kind = Expr::Kind::kName;
    node->text = name;
  }
  return node;
}

ExprPtr ExpressionParser::primary(bool with_namespace) {
  const Token& token = tokens_.current();
  if (token.type == Type::kName) return name_or_literal(with_namespace);
  if (token.type == Type::kString) {
    ExprPtr node = make(Expr::Kind::kConst);
    std::string text;
    while (tokens_.current().type == Type::kString) text += tokens_.next().text;
    node->constant = Value::text(std::move(text));
    return node;
  }
  if (token.type == Type::kNumber) {
    ExprPtr node = make(Expr::Kind::kConst);
    node->constant = tokens_.next().number;
    return node;
  }
  if (tokens_.skip_operator("(")) {
    ExprPtr node = tuple(true, "", true);
    tokens_.expect_operator(")");
    return node;
  }
  if (token.is_operator("[")) return list();
  if (token.is_operator("{")) return dict();
  tokens_.unexpected("an expression");
}

bool ExpressionParser::ends_tuple(std::string_view end_name) const {
  const Token& token = tokens_.current();
  return token.type == Type::kVariableEnd || token.type == Type::kBlockEnd ||
         token.is_operator(")") || (!end_name.empty() && token.is_name(end_name));
}

ExprPtr ExpressionParser::tuple(bool with_condition, std::string_view end_name,
                                bool in_parentheses) {
  ExprPtr node = make(Expr::Kind::kTuple);
  bool is_tuple = false;
  while (true) {
    if (!node->operands.empty()) tokens_.expect_operator(",");
    if (ends_tuple(end_name)) break;
    node->add(expression(with_condition));
    if (!tokens_.current().is_operator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return node;
  if (!node->operands.empty()) return std::move(node->operands[0]);
  if (!in_parentheses) tokens_.unexpected("an expression");
  return node;
}

ExprPtr ExpressionParser::target(bool with_namespace, std::string_view end_name) {
  ExprPtr node = make(Expr::Kind::kTuple);
  bool is_tuple = false;
  while (true) {
    if (!node->operands.empty()) tokens_.expect_operator(",");
    if (ends_tuple(end_name)) break;
    node->add(primary(with_namespace));
    if (!tokens_.current().is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (node->operands.empty()) tokens_.unexpected("an expression");
    node = std::move(node->operands[0]);
  }
  if (!can_assign(*node)) tokens_.complain("wanted a name to assign to, found something else");
  return node;
}

ExprPtr ExpressionParser::list() {
  ExprPtr node = make(Expr::Kind::kList);
  tokens_.next();
  while (!tokens_.current().is_operator("]")) {
    if (!node->operands.empty()) tokens_.expect_operator(",");
    if (tokens_.current().is_operator("]")) break;
    node->add(expression());
  }
  tokens_.next();
  return node;
}

ExprPtr ExpressionParser::dict() {
  ExprPtr node = make(Expr::Kind::kDict);
  tokens_.next();
  while (!tokens_.current().is_operator("}")) {
    if (!node->operands.empty()) tokens_.expect_operator(",");
    if (tokens_.current().is_operator("}")) break;
    node->add(expression());
    tokens_.expect_operator(":");
    node->add(expression());
  }
  tokens_.next();
  return node;
}

ExprPtr ExpressionParser::postfix(ExprPtr node) {
  while (true) {
    if (tokens_.current().is_operator(".") || tokens_.current().is_operator("["))
      node = subscript(std::move(node));
    else if (tokens_.current().is_operator("("))
      node = call(std::move(node));
    else
      return node;
  }
}

ExprPtr ExpressionParser::filter_or_test(ExprPtr node) {
  while (true) {
    if (tokens_.current().is_operator("|"))
      node = filters(std::move(node), false);
    else if (tokens_.current().is_name("is"))
      node = test(std::move(node));
    else if (tokens_.current().is_operator("("))
      node = call(std::move(node));
    else
      return node;
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr node) {
  ExprPtr item = make(Expr::Kind::kItem);
  item->add(std::move(node));
  if (tokens_.skip_operator(".")) {
    const Token token = tokens_.next();
    if (token.type == Type::kName) {
      item->kind = Expr::Kind::kAttribute;
      item->text = token.text;
      return item;
    }
    if (token.type != Type::kNumber || !token.number.is(Kind::kInt))
      tokens_.complain("wanted a name or a number behind the dot");
    ExprPtr index = make(Expr::Kind::kConst);
    index->constant = token.number;
    item->add(std::move(index));
    return item;
  }
  tokens_.next();
  std::vector<ExprPtr> keys;
  while (!tokens_.current().is_operator("]")) {
    if (!keys.empty()) tokens_.expect_operator(",");
    keys.push_back(slice_or_expression());
  }
  tokens_.next();
  if (keys.size() == 1) {
    item->add(std::move(keys[0]));
  } else {
    ExprPtr all = make(Expr::Kind::kTuple);
    for (ExprPtr& key : keys) all->add(std::move(key));
    item->add(std::move(all));
  }
  return item;
}

ExprPtr ExpressionParser::slice_or_expression() {
  const auto ends = [&] {
    return tokens_.current().is_operator("]") || tokens_.current().is_operator(",");
  };
  ExprPtr begin;
  ExprPtr node = make(Expr::Kind::kSlice);
  if (!tokens_.current().is_operator(":")) begin = expression();
  if (!tokens_.skip_operator(":")) return begin;
  node->add(std::move(begin));
  node->add(tokens_.current().is_operator(":") || ends() ? nullptr : expression());
  node->add(tokens_.skip_operator(":") && !ends() ? expression() : nullptr);
  return node;
}

void ExpressionParser::arguments(Expr& call) {
  tokens_.expect_operator("(");
  const auto allow = [&](bool allowed) {
    if (!allowed)
      tokens_.complain("wanted positional arguments before named ones, and * before **");
  };
  bool first = true;
  while (!tokens_.current().is_operator(")")) {
    if (!first) {
      tokens_.expect_operator(",");
      if (tokens_.current().is_operator(")")) break;
    }
    first = false;
    if (tokens_.skip_operator("*")) {
      allow(!call.all_positional && !call.all_named);
      call.all_positional = call.hold(expression());
    } else if (tokens_.skip_operator("**")) {
      allow(!call.all_named);
      call.all_named = call.hold(expression());
    } else if (tokens_.current().type == Type::kName && tokens_.ahead().is_operator("=")) {
      allow(!call.all_named);
      std::string name = tokens_.next().text;
      tokens_.next();
      for (const auto& other : call.named)
        if (other.first == name) tokens_.complain("the argument ", name, " is given twice");
      call.named.emplace_back(std::move(name), call.hold(expression()));
    } else {
      allow(!call.all_positional && !call.all_named && call.named.empty());
      call.add(expression());
    }
  }
  tokens_.next();
}

ExprPtr ExpressionParser::call(ExprPtr node) {
  ExprPtr made = make(Expr::Kind::kCall);
  made->add(std::move(node));
  arguments(*made);
  return made;
}

ExprPtr ExpressionParser::filters(ExprPtr input, bool inline_first) {
  while (inline_first || tokens_.skip_operator("|")) {
    inline_first = false;
    ExprPtr node = make(Expr::Kind::kFilter);
    node->text = tokens_.expect_any_name();
    while (tokens_.skip_operator(".")) node->text += "." + tokens_.expect_any_name();
    node->add(std::move(input));
    if (tokens_.current().is_operator("(")) arguments(*node);
    input = std::move(node);
  }
  return input;
}

bool ExpressionParser::begins_test_argument() const {
  const Token& token = tokens_.current();
  if (token.type == Type::kName)
    return token.text != "else" && token.text != "or" && token.text != "and";
  return token.type == Type::kString || token.type == Type::kNumber || token.is_operator("[") ||
         token.is_operator("{");
}

ExprPtr ExpressionParser::test(ExprPtr node) {
  ExprPtr made = make(Expr::Kind::kTest);
  tokens_.next();
  const bool negated = tokens_.skip_name("not");
  made->text = tokens_.expect_any_name();
  while (tokens_.skip_operator(".")) made->text += "." + tokens_.expect_any_name();
  made->add(std::move(node));
  if (tokens_.current().is_operator("(")) {
    arguments(*made);
  } else if (begins_test_argument()) {
    if (tokens_.current().is_name("is")) tokens_.complain("wanted one test, found a chain of them");
    made->add(postfix(primary(false)));
  }
  if (!negated) return made;
  ExprPtr negative = make(Expr::Kind::kNot);
  negative->add(std::move(made));
  return negative;
}

}  // namespace octavo::jinja
