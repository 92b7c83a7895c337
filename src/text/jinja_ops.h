// What Python does with values: truth, text, equality, order, arithmetic, items and attributes as
// jinja2's immutable sandbox allows them. Stateless apart from the Runtime's budget.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace tutti::jinja {

enum class Op : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,  // arithmetic
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn,  // comparison
  kPos,
  kNeg  // unary
};

bool truthy(const Value& v, Runtime& rt);
std::string to_text(const Value& v, Runtime& rt);  // str(v)
std::string repr(const Value& v, Runtime& rt);
std::string quote(std::string_view text);  // repr of a str
std::string float_repr(double d);
std::string int_text(Int i, int base = 10);  // lower-case digits, no prefix
std::string escape_html(std::string_view text);

bool equals(const Value& a, const Value& b, Runtime& rt);
bool less(const Value& a, const Value& b,
          Runtime& rt);  // a < b; raises on types that Python does not order
bool compare(Op op, const Value& a, const Value& b, Runtime& rt);
bool contains(const Value& container, const Value& item, Runtime& rt);
size_t hash(const Value& v, Runtime& rt);
bool hashable(const Value& v, Runtime& rt);

Value binary(Op op, const Value& a, const Value& b, Runtime& rt);
Value unary(Op op, const Value& v);
Value add(const Value& a, const Value& b, Runtime& rt);
Int checked_add(Int a, Int b);
Int checked_mul(Int a, Int b);

// len(v), nothing when the type has none.
std::optional<size_t> length(const Value& v, Runtime& rt);
bool iterable(const Value& v);
std::unique_ptr<Iterator> iterate(const Value& v, Runtime& rt);  // raises when not iterable
std::vector<Value> collect(const Value& v, Runtime& rt);         // list(v)
// A Python generator over `next`; `depth` as Value::depth of what it draws from.
Value make_generator(std::string type_name, int depth,
                     std::function<std::optional<Value>(Runtime&)> next);
Value make_function(std::string name, int depth, std::function<Value(Args, Runtime&)> body);

Value get_item(const Value& v, const Value& key, Runtime& rt);         // v[key] of a template
Value get_attr(const Value& v, const std::string& name, Runtime& rt);  // v.name of a template
// getattr(v, name) as the sandbox lets it: nothing when the type has no such attribute.
std::optional<Value> find_attr(const Value& v, const std::string& name, Runtime& rt);
Value get_slice(const Value& v, const Value& start, const Value& stop, const Value& step,
                Runtime& rt);

Value call(const Value& callee, Args args, Runtime& rt);

// A Python int as a C++ one, clamped to the range of int64: sizes and indexes. Raises on other
// types.
int64_t as_index(const Value& v);

}  // namespace tutti::jinja
