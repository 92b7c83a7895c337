// A parsed template: statements and expressions. Built by the parser, completed by the resolver
// (variable slots), then const and shared by all renders.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_ops.h"
#include "text/jinja_value.h"

namespace tutti::jinja {

// A variable: a slot of the activation `hops` functions further out. (Macros, call blocks, blocks
// and recursive loops are functions: each call has its own slots.)
struct VarRef {
  int hops = 0;
  int slot = -1;
};

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

enum class ExprKind : uint8_t {
  kConst,          // constant
  kName,           // name, in `var`
  kNamespaceAttr,  // name.attribute, as the target of an assignment
  kList,
  kTuple,   // operands
  kDict,    // operands: key, value, key, value, ...
  kUnary,   // op, operands[0]
  kBinary,  // op, operands[0..1]
  kAnd,
  kOr,           // operands[0..1]
  kNot,          // operands[0]
  kCompare,      // operands[0] ops[0] operands[1] ops[1] ...
  kConcat,       // operands
  kConditional,  // operands: condition, then, else or null
  kGetAttr,      // operands[0].name
  kGetItem,      // operands[0][operands[1]]
  kSlice,        // operands[0][operands[1] : operands[2] : operands[3]], each bound may be null
  kCall,         // operands[0](arguments)
  kFilter,  // operands[0] | name(arguments); a null operand stands for the text of a filter block
  kTest,    // operands[0] is name(arguments)
};

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;       // *expression
  ExprPtr star_star;  // **expression
};

struct Expr {
  Expr(ExprKind k, size_t where) : kind(k), at(where) {}
  ExprKind kind;
  Op op{};
  bool is_store = false;  // a name that is assigned to
  size_t at;              // byte offset in the template
  int depth = 1;
  std::string name, attribute;
  Value constant;
  Value undefined;  // a name: what it is when nothing has that name
  VarRef var;
  std::vector<ExprPtr> operands;
  std::vector<Op> ops;
  Arguments arguments;
};

enum class StmtKind : uint8_t {
  kText,       // text
  kOutput,     // exprs: printed one after the other
  kFor,        // target in iter [if test] [recursive]: body, else_body
  kIf,         // branches, else_body
  kSet,        // target = value
  kSetBlock,   // target = text of body, through filter when there is one
  kMacro,      // name, params, defaults, body
  kCallBlock,  // value is the call; params, defaults, body make up its caller. Without a call ({%
               // generation %}) the body is rendered in a scope of its own
  kFilterBlock,  // filter over the text of body
  kWith,         // exprs: target, value, target, value, ...
  kBlock,        // name, body
  kBreak,
  kContinue,
};

// How a variable slot is filled when a scope is entered. On leaving, all slots of the scope are
// unset.
struct ScopeLoad {
  enum class Kind : uint8_t {
    kContext,
    kCopy,
    kUnset,
    kParameter
  } kind;  // kParameter: whoever enters fills it
  int slot;
  std::string name;  // kContext: looked up among the template's variables
  VarRef from;       // kCopy: the variable of the same name further out
};

struct Branch {
  ExprPtr test;
  Body body;
};

struct Stmt {
  Stmt(StmtKind k, size_t where) : kind(k), at(where) {}
  StmtKind kind;
  bool recursive = false;
  size_t at;
  std::string name, text;
  ExprPtr target, iter, test, value, filter;
  std::vector<ExprPtr> exprs, params, defaults;
  std::vector<Branch> branches;
  Body body, else_body;

  // Set by the resolver.
  std::vector<ScopeLoad> loads, else_loads, test_loads;
  int loop_slot = -1;             // kFor: the variable `loop`
  int num_slots = 0;              // functions: size of their activation
  bool keeps_activation = false;  // a function inside may outlive the call
  VarRef var;                     // kMacro: where the macro is stored
  int caller_slot = -1, kwargs_slot = -1,
      varargs_slot = -1;  // kMacro, kCallBlock: when the body uses them
  bool exported = false;  // assigned at top level: visible to blocks
};

struct Template {
  std::string source;
  Body body;
  std::vector<ScopeLoad> loads;
  int num_slots = 0;
};

}  // namespace tutti::jinja
