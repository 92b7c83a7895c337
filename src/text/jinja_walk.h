// Visits every part of a syntax tree. Used by the resolver.
#pragma once

#include "text/jinja_ast.h"

namespace tutti::jinja {

// Calls visit(Expr&) for the direct parts of an expression, in the order of evaluation that jinja2
// writes them.
template <typename Visit>
void for_each_part(Expr& e, Visit visit) {
  for (auto& operand : e.operands) {
    if (operand) visit(*operand);
  }
  for (auto& arg : e.arguments.positional) visit(*arg);
  for (auto& arg : e.arguments.named) visit(*arg.second);
  if (e.arguments.star) visit(*e.arguments.star);
  if (e.arguments.star_star) visit(*e.arguments.star_star);
}

// Calls visit(Expr&) for the direct expressions of a statement and visit(Stmt&) for the statements
// inside it.
template <typename Visit>
void for_each_part(Stmt& s, Visit visit) {
  const auto one = [&](ExprPtr& e) {
    if (e) visit(*e);
  };
  const auto all = [&](auto& parts) {
    for (auto& part : parts) visit(*part);
  };
  if (s.kind != StmtKind::kMacro) one(s.target);  // the name of a macro is no expression
  one(s.iter);
  one(s.value);
  all(s.exprs);
  all(s.params);
  all(s.defaults);
  for (Branch& branch : s.branches) {
    one(branch.test);
    all(branch.body);
  }
  if (s.kind != StmtKind::kFilterBlock) one(s.filter);
  all(s.body);
  if (s.kind == StmtKind::kFilterBlock) one(s.filter);
  all(s.else_body);
  one(s.test);
}

}  // namespace tutti::jinja
