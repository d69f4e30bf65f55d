#pragma once
// A parsed template.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "jinja/scope.h"
#include "jinja/value.h"

namespace octavo::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<Stmt>;

enum class Operator : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn
};

struct Expr {
  enum class Kind : uint8_t {
    kConst,
    kName,
    kNamespaceRef,  // name.attribute as the target of set
    kTuple,
    kList,
    kDict,  // operands: key, value, key, value, …
    kCond,  // test, then, otherwise (may be null)
    kOr,
    kAnd,
    kNot,
    kCompare,  // operands[0] operators[0] operands[1] …
    kBinary,
    kConcat,
    kNegative,
    kPositive,
    kAttribute,  // operands[0].text
    kItem,       // operands[0][operands[1]]
    kSlice,      // begin, end, step: each may be null
    kCall,       // operands[0](the others)
    kFilter,     // operands[0] may be null: the text of a block
    kTest,
  };
  Kind kind = Kind::kConst;
  bool checked_late = false;  // in an if: a filter or test that is not there fails when it is used
  int line = 0;
  std::string text;       // of a name, attribute, filter or test
  std::string attribute;  // of kNamespaceRef
  Value constant;
  std::vector<ExprPtr> operands;
  std::vector<Operator> operators;
  std::vector<std::pair<std::string, ExprPtr>> named;  // arguments
  ExprPtr all_positional, all_named;                   // *x and **x
  Place place;                                         // of a name that is read
  int depth = 1;  // bounded, as whoever walks the tree calls itself

  // A child that is kept elsewhere.
  ExprPtr hold(ExprPtr child) {
    constexpr int kMost = 300;
    if (child) depth = std::max(depth, child->depth + 1);
    if (depth > kMost)
      refuse("line ", line, ": wanted expressions at most ", kMost, " deep, found deeper ones");
    return child;
  }
  void add(ExprPtr child) { operands.push_back(hold(std::move(child))); }
};

// Macro and call block.
struct Signature {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  bool wants_caller = false, wants_named = false, wants_positional = false;
  bool explicit_caller = false;
};

struct Stmt {
  enum class Kind : uint8_t {
    kData,
    kPrint,
    kSet,
    kSetBlock,
    kIf,  // branches: bodies with conditions (expressions), then maybe one without
    kFor,
    kBreak,
    kContinue,
    kMacro,
    kCall,
    kFilterBlock,
    kWith,
    kGeneration,
  };
  Kind kind = Kind::kData;
  int line = 0;
  std::string text;                  // of data
  ExprPtr target, value, test;       // of set, for, call, filter
  std::vector<ExprPtr> expressions;  // conditions of if; values of with
  std::vector<ExprPtr> targets;      // of with
  std::vector<Body> bodies;  // of if: one for each branch; else the body, and of for its else
  Signature signature;
  std::unique_ptr<Scope> scope, test_scope, else_scope;
  bool has_loop_variable = false;  // `loop` is used in the body
};

struct Tree {
  Body body;
  std::unique_ptr<Scope> scope;
  bool has_generation = false;  // {% generation %} marks what the model writes
};

}  // namespace octavo::jinja
