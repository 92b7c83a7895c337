// Tokens to syntax tree: the grammar of jinja2 with the loop controls and transformers' {%
// generation %} tag. Throws ConfigError with line and column. Called once per template, by
// ChatTemplate's constructor.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace tutti::jinja {

// Parsed and resolved: ready to render.
Template compile(std::string_view source);

class TokenStream {
 public:
  TokenStream(std::vector<Token> tokens, const std::string& source)
      : tokens_(std::move(tokens)), source_(source) {}

  const Token& current() const { return tokens_[i_]; }
  const Token& look() const { return tokens_[i_ + 1 < tokens_.size() ? i_ + 1 : i_]; }
  const Token& next();  // the current token, and goes on to the next
  bool is(Tok type) const { return current().type == type; }
  bool is_name(std::string_view name) const { return is(Tok::kName) && current().text == name; }
  bool is_op(std::string_view op) const { return is(Tok::kOperator) && current().text == op; }
  bool skip_name(std::string_view name);
  bool skip_op(std::string_view op);
  const Token& expect(Tok type);
  void expect_name(std::string_view name);
  void expect_op(std::string_view op);
  size_t at() const { return current().at; }
  [[noreturn]] void error(const std::string& message) const { error(at(), message); }
  [[noreturn]] void error(size_t at, const std::string& message) const {
    syntax_error(source_, at, message);
  }
  [[noreturn]] void unexpected(const std::string& wanted) const;

 private:
  std::vector<Token> tokens_;
  const std::string& source_;
  size_t i_ = 0;
};

// What ends a tuple that has no parentheses, beside the end of the tag.
enum class TupleEnd { kTag, kIn, kRecursive };

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& in) : in_(in) {}

  ExprPtr expression(bool with_conditional = true);
  ExprPtr tuple(bool with_conditional = true, TupleEnd end = TupleEnd::kTag,
                bool in_parentheses = false);
  ExprPtr target(TupleEnd end = TupleEnd::kTag, bool with_namespace = false);
  ExprPtr name_target();
  // The filters behind a "|"; `first` is one without it.
  ExprPtr filters(ExprPtr input, bool first = false);

 private:
  ExprPtr conditional();
  ExprPtr logical_or();
  ExprPtr logical_and();
  ExprPtr logical_not();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary(bool with_namespace = false);
  ExprPtr name(bool with_namespace);
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr e);
  ExprPtr filters_and_tests(ExprPtr e);
  ExprPtr subscript(ExprPtr e);
  ExprPtr subscribed(ExprPtr e);
  ExprPtr test(ExprPtr e);
  ExprPtr call(ExprPtr e);
  ExprPtr simple_tuple(TupleEnd end, bool with_namespace);
  Arguments arguments();
  std::string dotted_name();
  bool at_tuple_end(TupleEnd end) const;
  void check_target(const Expr& e) const;
  template <typename Next>
  ExprPtr left_associative(std::initializer_list<std::pair<std::string_view, Op>> ops, Next next);

  ExprPtr make(ExprKind kind, size_t at, std::vector<ExprPtr> operands = {});
  ExprPtr finish(ExprPtr e);

  TokenStream& in_;
  int nesting_ = 0;
};

}  // namespace tutti::jinja
