// Arithmetic of numbers, and what + * and % do for text and sequences.
#include <cmath>

#include "text/jinja_format.h"
#include "text/jinja_ops.h"

namespace tutti::jinja {
namespace {

const char* sign_of(Op op) {
  static constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  return kSigns[static_cast<int>(op)];
}

[[noreturn]] void overflow() { fail("integer result does not fit into 128 bits"); }

Int checked_sub(Int a, Int b) {
  Int result;
  if (__builtin_sub_overflow(a, b, &result)) overflow();
  return result;
}

Int floor_div(Int a, Int b) {
  if (b == -1) return checked_sub(0, a);
  const Int quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value power(Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0.0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  if (base == 0 || base == 1) return exponent == 0 ? Int{1} : base;
  if (base == -1) return Int{exponent % 2 == 0 ? 1 : -1};
  if (exponent > 127) overflow();
  Int result = 1;
  for (Int i = 0; i < exponent; ++i) result = checked_mul(result, base);
  return result;
}

Value integers(Op op, Int a, Int b) {
  if (b == 0 && (op == Op::kDiv || op == Op::kFloorDiv || op == Op::kMod)) {
    fail(op == Op::kDiv ? "division by zero" : "integer division or modulo by zero");
  }
  switch (op) {
    case Op::kAdd:
      return checked_add(a, b);
    case Op::kSub:
      return checked_sub(a, b);
    case Op::kMul:
      return checked_mul(a, b);
    case Op::kDiv:
      return static_cast<double>(a) / static_cast<double>(b);
    case Op::kFloorDiv:
      return floor_div(a, b);
    case Op::kMod:
      return b == -1 ? Int{0} : a - floor_div(a, b) * b;
    default:
      return power(a, b);
  }
}

double float_mod(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double float_floor_div(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value floats(Op op, double a, double b) {
  if (b == 0 && (op == Op::kDiv || op == Op::kFloorDiv || op == Op::kMod)) {
    fail(op == Op::kDiv   ? "float division by zero"
         : op == Op::kMod ? "float modulo"
                          : "float floor division by zero");
  }
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return a / b;
    case Op::kFloorDiv:
      return float_floor_div(a, b);
    case Op::kMod:
      return float_mod(a, b);
    default:
      break;
  }
  if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    fail("the power is a complex number");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
    fail("(34, 'Numerical result out of range')");
  return result;
}

Value repeat(const Value& v, Int times, Runtime& rt) {
  if (times < 0) times = 0;
  const size_t size = v.is_string() ? v.text().size() : v.items().size();
  if (size > 0 && times > static_cast<Int>(kMaxText / size)) {
    rt.text(times > static_cast<Int>(kMaxText) ? kMaxText + 1 : static_cast<size_t>(times) * size);
  }
  if (v.is_string()) {
    rt.text(size * static_cast<size_t>(times));
    std::string out;
    out.reserve(size * static_cast<size_t>(times));
    for (Int i = 0; size > 0 && i < times; ++i) out += v.text();
    return Value(std::move(out), v.is_markup());
  }
  rt.step(static_cast<int64_t>(size * static_cast<size_t>(times)));
  std::vector<Value> items;
  for (Int i = 0; size > 0 && i < times; ++i)
    items.insert(items.end(), v.items().begin(), v.items().end());
  return v.is_list() ? make_list(std::move(items), rt) : make_tuple(std::move(items), rt);
}

bool is_sequence(const Value& v) { return v.is_string() || v.is_list() || v.is_tuple(); }

}  // namespace

Int checked_add(Int a, Int b) {
  Int result;
  if (__builtin_add_overflow(a, b, &result)) overflow();
  return result;
}

Int checked_mul(Int a, Int b) {
  Int result;
  if (__builtin_mul_overflow(a, b, &result)) overflow();
  return result;
}

Value add(const Value& a, const Value& b, Runtime& rt) { return binary(Op::kAdd, a, b, rt); }

Value binary(Op op, const Value& a, const Value& b, Runtime& rt) {
  rt.step();
  if (a.is_string() && op == Op::kMod)
    return make_text(percent_format(a, b, rt), rt, a.is_markup());
  for (const Value* v : {&a, &b}) {
    if (v->is_undefined()) fail(v->undefined_message());
  }
  if (a.is_integral() && b.is_integral()) return integers(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return floats(op, a.as_double(), b.as_double());
  if (op == Op::kAdd) {
    if (a.is_string() && b.is_string()) {
      rt.text(a.text().size() + b.text().size());
      const bool markup = a.is_markup() || b.is_markup();
      const auto part = [&](const Value& v) {
        return markup && !v.is_markup() ? escape_html(v.text()) : v.text();
      };
      return Value(part(a) + part(b), markup);
    }
    if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
      std::vector<Value> items = a.items();
      items.insert(items.end(), b.items().begin(), b.items().end());
      return a.is_list() ? make_list(std::move(items), rt) : make_tuple(std::move(items), rt);
    }
    if (a.is_string() || a.is_list() || a.is_tuple()) {
      fail("can only concatenate " + a.type_name() + " (not \"" + b.type_name() + "\") to " +
           a.type_name());
    }
  }
  if (op == Op::kMul) {
    if (is_sequence(a) && b.is_integral()) return repeat(a, b.as_int(), rt);
    if (is_sequence(b) && a.is_integral()) return repeat(b, a.as_int(), rt);
  }
  fail(std::string("unsupported operand type(s) for ") + sign_of(op) + ": '" + a.type_name() +
       "' and '" + b.type_name() + "'");
}

Value unary(Op op, const Value& v) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (v.is_float()) return op == Op::kNeg ? -v.as_double() : v.as_double();
  if (v.is_integral()) return op == Op::kNeg ? checked_sub(0, v.as_int()) : v.as_int();
  fail(std::string("bad operand type for unary ") + (op == Op::kNeg ? "-" : "+") + ": '" +
       v.type_name() + "'");
}

int64_t as_index(const Value& v) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (!v.is_integral()) fail("'" + v.type_name() + "' object cannot be interpreted as an integer");
  const Int i = v.as_int();
  if (i > INT64_MAX) return INT64_MAX;
  if (i < INT64_MIN) return INT64_MIN;
  return static_cast<int64_t>(i);
}

}  // namespace tutti::jinja
