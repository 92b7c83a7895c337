// The interpreter's expressions.
#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_lexer.h"
#include "text/jinja_ops.h"

namespace tutti::jinja {

std::vector<Value> Interpreter::eval_all(const std::vector<ExprPtr>& exprs, Activation& a) {
  std::vector<Value> out;
  out.reserve(exprs.size());
  for (const auto& e : exprs) out.push_back(eval(*e, a));
  return out;
}

Value Interpreter::eval(const Expr& e, Activation& a) {
  const Runtime::Depth depth(rt_);
  rt_.step();
  const auto operand = [&](size_t i) { return eval(*e.operands[i], a); };
  switch (e.kind) {
    case ExprKind::kConst:
      return e.constant;
    case ExprKind::kName: {
      const Value& v = variable(e.var, a);
      return v.is_missing() ? e.undefined : v;
    }
    case ExprKind::kUnary:
      return unary(e.op, operand(0));
    case ExprKind::kBinary: {
      const Value left = operand(0);
      return binary(e.op, left, operand(1), rt_);
    }
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      Value left = operand(0);
      return truthy(left, rt_) == (e.kind == ExprKind::kOr) ? left : operand(1);
    }
    case ExprKind::kNot:
      return !truthy(operand(0), rt_);
    case ExprKind::kCompare:
      return eval_compare(e, a);
    case ExprKind::kConditional:
      return eval_conditional(e, a);
    case ExprKind::kGetAttr:
      return get_attr(operand(0), e.name, rt_);
    case ExprKind::kGetItem: {
      const Value owner = operand(0);
      return get_item(owner, operand(1), rt_);
    }
    case ExprKind::kCall: {
      const Value callee = operand(0);
      return call(callee, eval_arguments(e.arguments, a), rt_);
    }
    case ExprKind::kFilter:
      return eval_filter(e, a, {});
    case ExprKind::kTest: {
      const Value input = operand(0);
      return apply_test(e.name, input, eval_arguments(e.arguments, a), rt_);
    }
    default:
      return eval_collection(e, a);
  }
}

// Lists, tuples, dicts, slices, and text put together with "~".
Value Interpreter::eval_collection(const Expr& e, Activation& a) {
  switch (e.kind) {
    case ExprKind::kList:
      return make_list(eval_all(e.operands, a), rt_);
    case ExprKind::kTuple:
      return make_tuple(eval_all(e.operands, a), rt_);
    case ExprKind::kDict: {
      Dict out;
      for (size_t i = 0; i < e.operands.size(); i += 2) {
        Value key = eval(*e.operands[i], a);
        out.set(std::move(key), eval(*e.operands[i + 1], a), rt_);
      }
      return make_dict(std::move(out));
    }
    case ExprKind::kConcat: {
      std::string out;
      for (const auto& part : e.operands) write(eval(*part, a), out);
      return make_text(std::move(out), rt_);
    }
    default: {
      const auto bound = [&](size_t i) {
        return e.operands[i] ? eval(*e.operands[i], a) : Value(None{});
      };
      const Value owner = bound(0), start = bound(1), stop = bound(2);
      return get_slice(owner, start, stop, bound(3), rt_);
    }
  }
}

Value Interpreter::eval_compare(const Expr& e, Activation& a) {
  Value left = eval(*e.operands[0], a);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    Value right = eval(*e.operands[i + 1], a);
    if (!compare(e.ops[i], left, right, rt_)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::eval_conditional(const Expr& e, Activation& a) {
  if (truthy(eval(*e.operands[0], a), rt_)) return eval(*e.operands[1], a);
  if (e.operands[2]) return eval(*e.operands[2], a);
  return Value::undefined("the inline if-expression on line " +
                          std::to_string(line_column(template_.source, e.at).line) +
                          " evaluated to false and no else section was defined.");
}

// `block_text` is the input of a filter, or chain of filters, that has none of its own.
Value Interpreter::eval_filter(const Expr& e, Activation& a, const Value& block_text) {
  const Expr* from = e.operands[0].get();
  const Value input = from == nullptr                   ? block_text
                      : from->kind == ExprKind::kFilter ? eval_filter(*from, a, block_text)
                                                        : eval(*from, a);
  return apply_filter(e.name, input, eval_arguments(e.arguments, a), rt_);
}

Args Interpreter::eval_arguments(const Arguments& arguments, Activation& a) {
  Args out;
  out.positional = eval_all(arguments.positional, a);
  for (const auto& [name, value] : arguments.named) out.named.emplace_back(name, eval(*value, a));
  if (arguments.star) {
    for (Value& v : collect(eval(*arguments.star, a), rt_)) out.positional.push_back(std::move(v));
  }
  if (arguments.star_star) {
    const Value more = eval(*arguments.star_star, a);
    if (!more.is_dict()) fail("argument after ** must be a mapping, not " + more.type_name());
    for (const auto& [key, value] : more.dict().entries()) {
      if (!key.is_string()) fail("keywords must be strings");
      for (const auto& other : out.named) {
        if (other.first == key.text())
          fail("got multiple values for keyword argument " + quote(key.text()));
      }
      out.named.emplace_back(key.text(), value);
    }
  }
  return out;
}

}  // namespace tutti::jinja
