#include "jinja/parser.h"

#include "base/printable.h"
#include "jinja/analyze.h"
#include "jinja/expression_parser.h"

namespace octavo::jinja {
namespace {

using Type = Token::Type;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)), expressions_(tokens_) {}

  Tree run() {
    Tree tree;
    tree.body = statements({});
    if (tokens_.current().type != Type::kEnd) tokens_.unexpected("the end of the template");
    tree.has_generation = has_generation_;
    return tree;
  }

 private:
  using Statement = void (Parser::*)(Stmt&);
  struct Tag {
    std::string_view name;
    Statement parse;  // null: not done here
  };
  static const Tag kTags[];

  // Up to a tag of one of these names, which is current then.
  Body statements(std::initializer_list<std::string_view> ends) {
    expressions_.enter();
    Body body;
    while (tokens_.current().type != Type::kEnd) {
      Stmt statement;
      statement.line = tokens_.current().line;
      if (tokens_.current().type == Type::kData) {
        statement.text = tokens_.next().text;
      } else if (tokens_.current().type == Type::kVariableBegin) {
        tokens_.next();
        statement.kind = Stmt::Kind::kPrint;
        statement.value = expressions_.tuple();
        tokens_.expect(Type::kVariableEnd, "}}");
      } else {
        tokens_.expect(Type::kBlockBegin, "a tag");
        for (const std::string_view end : ends)
          if (tokens_.current().is_name(end)) {
            expressions_.leave();
            return body;
          }
        tag(statement);
        tokens_.expect(Type::kBlockEnd, "%}");
      }
      body.push_back(std::move(statement));
    }
    if (ends.size() > 0) tokens_.unexpected(str("{% ", *ends.begin(), " %}"));
    expressions_.leave();
    return body;
  }

  // The body of a tag: behind its %}, up to one of `ends`.
  Body block(std::initializer_list<std::string_view> ends) {
    tokens_.skip_operator(":");
    tokens_.expect(Type::kBlockEnd, "%}");
    return statements(ends);
  }
  Body whole_block(std::string_view end) {
    Body body = block({end});
    tokens_.next();
    return body;
  }
  // A block that is a function: no loop of outside can be left in it.
  Body function_block(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = whole_block(end);
    loops_ = loops;
    return body;
  }

  void tag(Stmt& statement);

  void set(Stmt& statement) {
    tokens_.next();
    statement.target = expressions_.target(true);
    if (tokens_.skip_operator("=")) {
      statement.kind = Stmt::Kind::kSet;
      statement.value = expressions_.tuple();
      return;
    }
    statement.kind = Stmt::Kind::kSetBlock;
    statement.value = expressions_.filters(nullptr, false);
    statement.bodies.push_back(whole_block("endset"));
  }

  void for_loop(Stmt& statement) {
    tokens_.next();
    statement.kind = Stmt::Kind::kFor;
    statement.target = expressions_.target(false, "in");
    tokens_.expect_name("in");
    statement.value = expressions_.tuple(false, "recursive");
    if (tokens_.skip_name("if")) statement.test = expressions_.expression();
    if (tokens_.current().is_name("recursive"))
      tokens_.complain("recursive loops are not supported");
    ++loops_;
    statement.bodies.push_back(block({"endfor", "else"}));
    --loops_;
    if (tokens_.next().text == "else") statement.bodies.push_back(whole_block("endfor"));
  }

  void if_else(Stmt& statement) {
    statement.kind = Stmt::Kind::kIf;
    std::string tag = tokens_.next().text;
    while (tag != "endif") {
      if (tag == "else") {
        statement.bodies.push_back(whole_block("endif"));
        return;
      }
      statement.expressions.push_back(expressions_.tuple(false));
      statement.bodies.push_back(block({"elif", "else", "endif"}));
      tag = tokens_.next().text;
    }
  }

  void signature(Signature& made) {
    tokens_.expect_operator("(");
    while (!tokens_.current().is_operator(")")) {
      if (!made.parameters.empty()) tokens_.expect_operator(",");
      std::string name = tokens_.expect_any_name();
      for (const std::string& other : made.parameters)
        if (other == name) tokens_.complain("the parameter ", name, " is there twice");
      made.parameters.push_back(std::move(name));
      if (tokens_.skip_operator("="))
        made.defaults.push_back(expressions_.expression());
      else if (!made.defaults.empty())
        tokens_.complain("wanted a default for the parameter ", made.parameters.back());
    }
    tokens_.next();
  }

  void macro(Stmt& statement) {
    tokens_.next();
    statement.kind = Stmt::Kind::kMacro;
    statement.signature.name = tokens_.expect_any_name();
    signature(statement.signature);
    statement.bodies.push_back(function_block("endmacro"));
  }

  void call(Stmt& statement) {
    tokens_.next();
    statement.kind = Stmt::Kind::kCall;
    if (tokens_.current().is_operator("(")) signature(statement.signature);
    statement.signature.name = "caller";
    statement.value = expressions_.expression();
    if (statement.value->kind != Expr::Kind::kCall)
      tokens_.complain("wanted a call behind {% call");
    statement.bodies.push_back(function_block("endcall"));
  }

  void generation(Stmt& statement) {
    tokens_.next();
    statement.kind = Stmt::Kind::kGeneration;
    has_generation_ = true;
    statement.bodies.push_back(function_block("endgeneration"));
  }

  void filter(Stmt& statement) {
    tokens_.next();
    statement.kind = Stmt::Kind::kFilterBlock;
    statement.value = expressions_.filters(nullptr, true);
    statement.bodies.push_back(whole_block("endfilter"));
  }

  void with(Stmt& statement) {
    tokens_.next();
    statement.kind = Stmt::Kind::kWith;
    while (tokens_.current().type != Type::kBlockEnd) {
      if (!statement.targets.empty()) tokens_.expect_operator(",");
      statement.targets.push_back(expressions_.target(false));
      tokens_.expect_operator("=");
      statement.expressions.push_back(expressions_.expression());
    }
    statement.bodies.push_back(whole_block("endwith"));
  }

  // {% print a, b %}
  void print(Stmt& statement) {
    tokens_.next();
    statement.kind = Stmt::Kind::kPrint;
    ExprPtr all = std::make_unique<Expr>();
    all->kind = Expr::Kind::kConcat;
    all->line = statement.line;
    while (tokens_.current().type != Type::kBlockEnd) {
      if (!all->operands.empty()) tokens_.expect_operator(",");
      all->add(expressions_.expression());
    }
    statement.value = std::move(all);
  }

  void leave_loop(Stmt& statement) {
    statement.kind = tokens_.current().text == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue;
    if (loops_ == 0) tokens_.complain("{% ", tokens_.current().text, " %} stands in no loop");
    tokens_.next();
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int loops_ = 0;  // around this place, in the same function
  bool has_generation_ = false;
};

const Parser::Tag Parser::kTags[] = {
    {"set", &Parser::set},
    {"for", &Parser::for_loop},
    {"if", &Parser::if_else},
    {"macro", &Parser::macro},
    {"call", &Parser::call},
    {"generation", &Parser::generation},
    {"filter", &Parser::filter},
    {"with", &Parser::with},
    {"print", &Parser::print},
    {"break", &Parser::leave_loop},
    {"continue", &Parser::leave_loop},
    {"block", nullptr},
    {"extends", nullptr},
    {"include", nullptr},
    {"import", nullptr},
    {"from", nullptr},
    {"autoescape", nullptr},
};

void Parser::tag(Stmt& statement) {
  if (tokens_.current().type != Type::kName) tokens_.unexpected("the name of a tag");
  const std::string name = tokens_.current().text;
  for (const Tag& known : kTags) {
    if (known.name != name) continue;
    if (known.parse == nullptr)
      tokens_.complain("{% ", name, " %} is not supported: templates of chats stand alone");
    (this->*known.parse)(statement);
    return;
  }
  tokens_.unexpected("a tag of Jinja");
}

}  // namespace

Tree parse(std::string_view source) {
  Tree tree = Parser(source).run();
  analyze(tree);
  return tree;
}

}  // namespace octavo::jinja
