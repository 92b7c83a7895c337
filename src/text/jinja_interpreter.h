// Runs a compiled template over one context. Made for one render, on the thread that renders.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace tutti::jinja {

// The variables of one call of a function of the template (jinja_ast.h: VarRef).
struct Activation {
  Activation(Activation* outside, int num_slots) : outer(outside), slots(num_slots) {}
  Activation* outer;
  std::vector<Value> slots;
};

class Interpreter {
 public:
  // `context`: the template's variables. Both outlive the interpreter.
  Interpreter(const Template& parsed, const Dict& context, Runtime& rt)
      : template_(parsed), context_(context), rt_(rt) {}

  // The rendered text. Throws TemplateError; at() then tells where.
  std::string run();
  size_t at() const { return at_; }

  // A call of the macro or call block `s` that was defined in `outer`.
  Value call_function(const Stmt& s, Activation* outer, Args args);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  Flow exec(const Body& body, Activation& a, std::string& out);
  Flow exec(const Stmt& s, Activation& a, std::string& out);
  Flow exec_if(const Stmt& s, Activation& a, std::string& out);
  Flow exec_for(const Stmt& s, Activation& a, std::string& out);
  Flow run_loop(const Stmt& s, const Value& iterable, Activation& a, std::string& out, int depth,
                bool recursive);
  Value run_recursive(const Stmt& s, const Value& iterable, Activation* outer, int depth);
  std::unique_ptr<Iterator> loop_items(const Stmt& s, const Value& iterable, Activation& a);
  Flow exec_set_block(const Stmt& s, Activation& a);
  Flow exec_filter_block(const Stmt& s, Activation& a, std::string& out);
  Flow exec_with(const Stmt& s, Activation& a, std::string& out);
  void exec_call_block(const Stmt& s, Activation& a, std::string& out);
  void exec_block(const Stmt& s, std::string& out);
  void write(const Value& v, std::string& out);

  Value eval(const Expr& e, Activation& a);
  Value eval_collection(const Expr& e, Activation& a);
  Value eval_compare(const Expr& e, Activation& a);
  Value eval_conditional(const Expr& e, Activation& a);
  Value eval_filter(const Expr& e, Activation& a, const Value& block_text);
  Args eval_arguments(const Arguments& arguments, Activation& a);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& exprs, Activation& a);

  void assign(const Expr& target, Value v, Activation& a);
  void export_names(const Expr& target, Activation& a);
  static Value& variable(VarRef var, Activation& a);
  Value context_value(const std::string& name);
  void enter(const std::vector<ScopeLoad>& loads, Activation& a);
  static void leave(const std::vector<ScopeLoad>& loads, Activation& a);
  // An activation that dies with the returned pointer, unless functions inside it may need it
  // later.
  std::shared_ptr<Activation> activate(int num_slots, bool keep, Activation* outer);

  const Template& template_;
  const Dict& context_;
  Runtime& rt_;
  size_t at_ = 0;
  std::map<std::string, Value> exported_;  // top-level variables, as blocks see them
  std::vector<std::shared_ptr<Activation>> kept_;
};

}  // namespace tutti::jinja
