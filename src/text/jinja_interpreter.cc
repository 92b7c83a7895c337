#include "text/jinja_interpreter.h"

#include <algorithm>

#include "text/jinja_filters.h"
#include "text/jinja_objects.h"
#include "text/jinja_ops.h"

namespace tutti::jinja {
namespace {

// A macro, or the caller of a call block.
class Macro : public Object {
 public:
  Macro(Interpreter& interpreter, const Stmt& s, Activation* outer)
      : interpreter_(interpreter), stmt_(s), outer_(outer) {}
  std::string type_name() const override { return "Macro"; }
  std::string repr(Runtime&) const override {
    return "<Macro " + (stmt_.name.empty() ? "anonymous" : quote(stmt_.name)) + ">";
  }
  bool callable() const override { return true; }
  Value call(Args args, Runtime&) override {
    return interpreter_.call_function(stmt_, outer_, std::move(args));
  }
  std::optional<Value> attribute(const std::string& name, Runtime& rt) override {
    if (name == "name") return stmt_.name.empty() ? Value(None{}) : Value(stmt_.name);
    if (name == "catch_kwargs") return stmt_.kwargs_slot >= 0;
    if (name == "catch_varargs") return stmt_.varargs_slot >= 0;
    if (name == "caller") return stmt_.caller_slot >= 0;
    if (name == "arguments") {
      std::vector<Value> names;
      for (const auto& param : stmt_.params) names.emplace_back(param->name);
      return make_tuple(std::move(names), rt);
    }
    return std::nullopt;
  }

 private:
  Interpreter& interpreter_;
  const Stmt& stmt_;
  Activation* outer_;
};

// The items of a loop that pass its "if".
template <typename Accept>
class FilteredIterator : public Iterator {
 public:
  FilteredIterator(std::unique_ptr<Iterator> source, Accept accept)
      : source_(std::move(source)), accept_(std::move(accept)) {}
  std::optional<Value> next(Runtime& rt) override {
    while (auto item = source_->next(rt)) {
      rt.step();
      if (accept_(*item)) return item;
    }
    return std::nullopt;
  }

 private:
  std::unique_ptr<Iterator> source_;
  Accept accept_;
};

}  // namespace

std::string Interpreter::run() {
  Activation root(nullptr, template_.num_slots);
  std::string out;
  enter(template_.loads, root);
  exec(template_.body, root, out);
  return out;
}

Value& Interpreter::variable(VarRef var, Activation& a) {
  Activation* owner = &a;
  for (int i = 0; i < var.hops; ++i) owner = owner->outer;
  return owner->slots[var.slot];
}

Value Interpreter::context_value(const std::string& name) {
  if (const auto it = exported_.find(name); it != exported_.end()) return it->second;
  if (const Value* found = context_.find(name)) return *found;
  return find_global(name).value_or(Value());
}

void Interpreter::enter(const std::vector<ScopeLoad>& loads, Activation& a) {
  for (const ScopeLoad& load : loads) {
    switch (load.kind) {
      case ScopeLoad::Kind::kContext:
        a.slots[load.slot] = context_value(load.name);
        break;
      case ScopeLoad::Kind::kCopy:
        a.slots[load.slot] = variable(load.from, a);
        break;
      case ScopeLoad::Kind::kUnset:
        a.slots[load.slot] = Value();
        break;
      case ScopeLoad::Kind::kParameter:
        break;
    }
  }
}

void Interpreter::leave(const std::vector<ScopeLoad>& loads, Activation& a) {
  for (const ScopeLoad& load : loads) a.slots[load.slot] = Value();
}

std::shared_ptr<Activation> Interpreter::activate(int num_slots, bool keep, Activation* outer) {
  rt_.step(num_slots);
  auto activation = std::make_shared<Activation>(outer, num_slots);
  if (keep) kept_.push_back(activation);
  return activation;
}

Interpreter::Flow Interpreter::exec(const Body& body, Activation& a, std::string& out) {
  for (const auto& s : body) {
    const Flow flow = exec(*s, a, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

void Interpreter::write(const Value& v, std::string& out) {
  if (v.is_string()) {
    out += v.text();
  } else {
    out += to_text(v, rt_);
  }
  if (out.size() > kMaxText) rt_.text(out.size());
}

Interpreter::Flow Interpreter::exec(const Stmt& s, Activation& a, std::string& out) {
  const Runtime::Depth depth(rt_);
  rt_.step();
  at_ = s.at;
  switch (s.kind) {
    case StmtKind::kText:
      out += s.text;
      if (out.size() > kMaxText) rt_.text(out.size());
      return Flow::kNext;
    case StmtKind::kOutput:
      for (const auto& e : s.exprs) write(eval(*e, a), out);
      return Flow::kNext;
    case StmtKind::kFor:
      return exec_for(s, a, out);
    case StmtKind::kIf:
      return exec_if(s, a, out);
    case StmtKind::kSet:
      assign(*s.target, eval(*s.value, a), a);
      if (s.exported) export_names(*s.target, a);
      return Flow::kNext;
    case StmtKind::kSetBlock:
      return exec_set_block(s, a);
    case StmtKind::kMacro: {
      const Value macro(std::make_shared<Macro>(*this, s, &a));
      variable(s.var, a) = macro;
      if (s.exported) exported_[s.name] = macro;
      return Flow::kNext;
    }
    case StmtKind::kCallBlock:
      exec_call_block(s, a, out);
      return Flow::kNext;
    case StmtKind::kFilterBlock:
      return exec_filter_block(s, a, out);
    case StmtKind::kWith:
      return exec_with(s, a, out);
    case StmtKind::kBlock:
      exec_block(s, out);
      return Flow::kNext;
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::exec_if(const Stmt& s, Activation& a, std::string& out) {
  for (const Branch& branch : s.branches) {
    if (truthy(eval(*branch.test, a), rt_)) return exec(branch.body, a, out);
  }
  return exec(s.else_body, a, out);
}

Interpreter::Flow Interpreter::exec_for(const Stmt& s, Activation& a, std::string& out) {
  const Value iterable = eval(*s.iter, a);
  if (!s.recursive) return run_loop(s, iterable, a, out, 0, false);
  write(run_recursive(s, iterable, &a, 0), out);
  return Flow::kNext;
}

Value Interpreter::run_recursive(const Stmt& s, const Value& iterable, Activation* outer,
                                 int depth) {
  const auto activation = activate(s.num_slots, s.keeps_activation, outer);
  std::string out;
  run_loop(s, iterable, *activation, out, depth, true);
  return make_text(std::move(out), rt_);
}

std::unique_ptr<Iterator> Interpreter::loop_items(const Stmt& s, const Value& iterable,
                                                  Activation& a) {
  auto items = iterate(iterable, rt_);
  if (!s.test) return items;
  enter(s.test_loads, a);
  auto accept = [this, &s, &a](const Value& item) {
    assign(*s.params[0], item, a);
    return truthy(eval(*s.test, a), rt_);
  };
  return std::make_unique<FilteredIterator<decltype(accept)>>(std::move(items), std::move(accept));
}

Interpreter::Flow Interpreter::run_loop(const Stmt& s, const Value& iterable, Activation& a,
                                        std::string& out, int depth, bool recursive) {
  Loop::Recurse recurse;
  if (recursive) {
    recurse = [this, &s, outer = a.outer](const Value& inner, int inner_depth) {
      return run_recursive(s, inner, outer, inner_depth);
    };
  }
  auto items = loop_items(s, iterable, a);
  const auto size = s.test ? std::nullopt : length(iterable, rt_);
  const auto loop = std::make_shared<Loop>(std::move(items), size, std::move(recurse), depth);
  bool finished_one = false;  // of the rounds, without continue
  while (auto item = loop->advance(rt_)) {
    rt_.step();
    assign(*s.target, std::move(*item), a);
    a.slots[s.loop_slot] = Value(ObjectPtr(loop));
    enter(s.loads, a);
    const Flow flow = exec(s.body, a, out);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNext) finished_one = true;
  }
  loop->stop();
  leave(s.loads, a);
  if (finished_one || s.else_body.empty()) return Flow::kNext;
  enter(s.else_loads, a);
  const Flow flow = exec(s.else_body, a, out);
  leave(s.else_loads, a);
  return flow;
}

// A break or continue out of the body leaves the target as it was.
Interpreter::Flow Interpreter::exec_set_block(const Stmt& s, Activation& a) {
  enter(s.loads, a);
  std::string text;
  const Flow flow = exec(s.body, a, text);
  if (flow != Flow::kNext) return flow;
  Value v = make_text(std::move(text), rt_);
  if (s.filter) v = eval_filter(*s.filter, a, v);
  assign(*s.target, std::move(v), a);
  if (s.exported) export_names(*s.target, a);
  leave(s.loads, a);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::exec_filter_block(const Stmt& s, Activation& a, std::string& out) {
  enter(s.loads, a);
  std::string text;
  const Flow flow = exec(s.body, a, text);
  if (flow != Flow::kNext) return flow;
  write(eval_filter(*s.filter, a, make_text(std::move(text), rt_)), out);
  leave(s.loads, a);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::exec_with(const Stmt& s, Activation& a, std::string& out) {
  enter(s.loads, a);
  for (size_t i = 0; i < s.exprs.size(); i += 2) assign(*s.exprs[i], eval(*s.exprs[i + 1], a), a);
  const Flow flow = exec(s.body, a, out);
  leave(s.loads, a);
  return flow;
}

void Interpreter::exec_call_block(const Stmt& s, Activation& a, std::string& out) {
  if (!s.value) {
    write(call_function(s, &a, {}), out);
    return;
  }
  const Value caller(std::make_shared<Macro>(*this, s, &a));
  const Value callee = eval(*s.value->operands[0], a);
  Args args = eval_arguments(s.value->arguments, a);
  args.named.emplace_back("caller", caller);
  write(call(callee, std::move(args), rt_), out);
}

void Interpreter::exec_block(const Stmt& s, std::string& out) {
  const auto activation = activate(s.num_slots, s.keeps_activation, nullptr);
  enter(s.loads, *activation);
  exec(s.body, *activation, out);
}

Value Interpreter::call_function(const Stmt& s, Activation* outer, Args args) {
  const Runtime::Depth depth(rt_);
  const auto activation = activate(s.num_slots, s.keeps_activation, outer);
  Activation& a = *activation;
  const size_t at = at_;
  const size_t given = std::min(args.positional.size(), s.params.size());
  for (size_t i = 0; i < s.params.size(); ++i) {
    Value& slot = variable(s.params[i]->var, a);
    slot = i < given ? args.positional[i] : args.take_named(s.params[i]->name).value_or(Value());
  }
  if (s.caller_slot >= 0) {
    Value caller = args.take_named("caller").value_or(None{});
    a.slots[s.caller_slot] =
        caller.is_none() ? Value::undefined("No caller defined") : std::move(caller);
  }
  if (s.kwargs_slot >= 0) {
    Dict rest;
    for (auto& [name, value] : args.named) rest.set(Value(name), std::move(value), rt_);
    a.slots[s.kwargs_slot] = make_dict(std::move(rest));
  } else if (!args.named.empty()) {
    fail("macro " + quote(s.name) + " takes no keyword argument " + quote(args.named[0].first));
  }
  if (s.varargs_slot >= 0) {
    a.slots[s.varargs_slot] =
        make_tuple({args.positional.begin() + given, args.positional.end()}, rt_);
  } else if (args.positional.size() > s.params.size()) {
    fail("macro " + quote(s.name) + " takes not more than " + std::to_string(s.params.size()) +
         " argument(s)");
  }
  enter(s.loads, a);
  const size_t first_default = s.params.size() - s.defaults.size();
  for (size_t i = 0; i < s.params.size(); ++i) {
    if (!variable(s.params[i]->var, a).is_missing()) continue;
    Value v = i < first_default
                  ? Value::undefined("parameter " + quote(s.params[i]->name) + " was not provided")
                  : eval(*s.defaults[i - first_default], a);
    variable(s.params[i]->var, a) = std::move(v);
  }
  std::string out;
  exec(s.body, a, out);
  at_ = at;
  return make_text(std::move(out), rt_);
}

void Interpreter::assign(const Expr& target, Value v, Activation& a) {
  if (target.kind == ExprKind::kName) {
    variable(target.var, a) = std::move(v);
    return;
  }
  if (target.kind == ExprKind::kNamespaceAttr) {
    const Value owner = variable(target.var, a);
    auto* names = owner.is_object() ? dynamic_cast<Namespace*>(&owner.object()) : nullptr;
    if (names == nullptr) fail("cannot assign attribute on non-namespace object");
    names->set(target.attribute, std::move(v), rt_);
    return;
  }
  const size_t wanted = target.operands.size();
  if (!iterable(v)) fail("cannot unpack non-iterable " + v.type_name() + " object");
  const auto it = iterate(v, rt_);
  std::vector<Value> items;
  while (auto item = it->next(rt_)) {
    if (items.size() == wanted)
      fail("too many values to unpack (expected " + std::to_string(wanted) + ")");
    items.push_back(std::move(*item));
  }
  if (items.size() < wanted) {
    fail("not enough values to unpack (expected " + std::to_string(wanted) + ", got " +
         std::to_string(items.size()) + ")");
  }
  for (size_t i = 0; i < wanted; ++i) assign(*target.operands[i], std::move(items[i]), a);
}

void Interpreter::export_names(const Expr& target, Activation& a) {
  if (target.kind == ExprKind::kName) exported_[target.name] = variable(target.var, a);
  for (const auto& item : target.operands) export_names(*item, a);
}

}  // namespace tutti::jinja
