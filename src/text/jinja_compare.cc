// Truth, equality, order, hashing and membership.
#include <cmath>
#include <functional>

#include "text/jinja_ops.h"

namespace tutti::jinja {
namespace {

// -1, 0, 1 as i is less than, equal to, greater than d, without rounding either; 2 when d is not a
// number.
int order_int_double(Int i, double d) {
  if (std::isnan(d)) return 2;
  if (d >= 0x1p126) return -1;
  if (d <= -0x1p126) return 1;
  const double whole = std::floor(d);
  const Int j = static_cast<Int>(whole);
  if (i != j) return i < j ? -1 : 1;
  return whole < d ? -1 : 0;
}

// As above, for any two numbers.
int order_numbers(const Value& a, const Value& b) {
  if (a.is_float() && b.is_float()) {
    const double x = a.as_double(), y = b.as_double();
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
  }
  if (a.is_float()) {
    const int order = order_int_double(b.as_int(), a.as_double());
    return order == 2 ? 2 : -order;
  }
  if (b.is_float()) return order_int_double(a.as_int(), b.as_double());
  return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
}

bool items_equal(const std::vector<Value>& a, const std::vector<Value>& b, Runtime& rt) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equals(a[i], b[i], rt)) return false;
  }
  return true;
}

bool dicts_equal(const Dict& a, const Dict& b, Runtime& rt) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key, rt);
    if (other == nullptr || !equals(value, *other, rt)) return false;
  }
  return true;
}

// dict.keys() and dict.items() compare like sets.
bool views_equal(const DictView& a, const DictView& b, Runtime& rt) {
  if (a.kind != b.kind || a.kind == DictView::Kind::kValues) return &a == &b;
  if (a.kind == DictView::Kind::kItems) return dicts_equal(*a.dict, *b.dict, rt);
  if (a.dict->size() != b.dict->size()) return false;
  for (const auto& entry : a.dict->entries()) {
    if (b.dict->find(entry.first, rt) == nullptr) return false;
  }
  return true;
}

[[noreturn]] void not_ordered(const char* op, const Value& a, const Value& b) {
  fail("'" + std::string(op) + "' not supported between instances of '" + a.type_name() +
       "' and '" + b.type_name() + "'");
}

// Lists and tuples: the first pair that differs decides.
bool items_ordered(Op op, const std::vector<Value>& a, const std::vector<Value>& b, Runtime& rt) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (!equals(a[i], b[i], rt)) return compare(op, a[i], b[i], rt);
  }
  switch (op) {
    case Op::kLt:
      return a.size() < b.size();
    case Op::kLe:
      return a.size() <= b.size();
    case Op::kGt:
      return a.size() > b.size();
    default:
      return a.size() >= b.size();
  }
}

bool ordered(Op op, const Value& a, const Value& b, Runtime& rt) {
  static constexpr const char* kSigns[] = {"<", "<=", ">", ">="};
  const Runtime::Depth depth(rt);
  for (const Value* v : {&a, &b}) {
    if (v->is_undefined()) fail(v->undefined_message());
  }
  if (a.is_number() && b.is_number()) {
    const int order = order_numbers(a, b);
    if (order == 2) return false;
    return op == Op::kLt   ? order < 0
           : op == Op::kLe ? order <= 0
           : op == Op::kGt ? order > 0
                           : order >= 0;
  }
  if (a.is_string() && b.is_string()) {
    rt.step(static_cast<int64_t>(std::min(a.text().size(), b.text().size()) / 32));
    const int order = a.text().compare(b.text());  // UTF-8 sorts as code points do
    return op == Op::kLt   ? order < 0
           : op == Op::kLe ? order <= 0
           : op == Op::kGt ? order > 0
                           : order >= 0;
  }
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    return items_ordered(op, a.items(), b.items(), rt);
  }
  not_ordered(kSigns[static_cast<int>(op) - static_cast<int>(Op::kLt)], a, b);
}

}  // namespace

bool truthy(const Value& v, Runtime& rt) {
  if (v.is_undefined() || v.is_none()) return false;
  if (v.is_bool()) return v.as_bool();
  if (v.is_int()) return v.as_int() != 0;
  if (v.is_float()) return v.as_double() != 0;
  const auto n = length(v, rt);
  return !n || *n > 0;
}

bool equals(const Value& a, const Value& b, Runtime& rt) {
  const Runtime::Depth depth(rt);
  rt.step();
  if (a.is_number() && b.is_number()) return order_numbers(a, b) == 0;
  if (a.is_string() && b.is_string()) {
    rt.step(static_cast<int64_t>(a.text().size() / 32));
    return a.text() == b.text();
  }
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple()))
    return items_equal(a.items(), b.items(), rt);
  if (a.is_dict() && b.is_dict()) return dicts_equal(a.dict(), b.dict(), rt);
  if (a.is_view() && b.is_view()) return views_equal(a.view(), b.view(), rt);
  if (a.is_range() && b.is_range()) {
    const Range &x = a.range(), &y = b.range();
    const int64_t n = x.size();
    return n == y.size() && (n == 0 || (x.start == y.start && (n == 1 || x.step == y.step)));
  }
  if (a.is_undefined() && b.is_undefined()) return true;
  return a.same_as(b);
}

bool less(const Value& a, const Value& b, Runtime& rt) { return ordered(Op::kLt, a, b, rt); }

bool compare(Op op, const Value& a, const Value& b, Runtime& rt) {
  rt.step();
  switch (op) {
    case Op::kEq:
      return equals(a, b, rt);
    case Op::kNe:
      return !equals(a, b, rt);
    case Op::kIn:
      return contains(b, a, rt);
    case Op::kNotIn:
      return !contains(b, a, rt);
    default:
      return ordered(op, a, b, rt);
  }
}

bool contains(const Value& container, const Value& item, Runtime& rt) {
  if (container.is_string()) {
    if (!item.is_string()) {
      fail("'in <string>' requires string as left operand, not " + item.type_name());
    }
    rt.step(static_cast<int64_t>(container.text().size() / 32));
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is_dict()) return container.dict().find(item, rt) != nullptr;
  if (container.is_view() && container.view().kind == DictView::Kind::kKeys) {
    return container.view().dict->find(item, rt) != nullptr;
  }
  if (!iterable(container))
    fail("argument of type '" + container.type_name() + "' is not iterable");
  const auto it = iterate(container, rt);
  while (const auto v = it->next(rt)) {
    if (v->same_as(item) || equals(*v, item, rt)) return true;
  }
  return false;
}

bool hashable(const Value& v, Runtime& rt) {
  rt.step();
  if (v.is_tuple()) {
    for (const Value& item : v.items()) {
      if (!hashable(item, rt)) return false;
    }
    return true;
  }
  return !v.is_list() && !v.is_dict() && !v.is_view();
}

size_t hash(const Value& v, Runtime& rt) {
  rt.step();
  if (v.is_string()) return std::hash<std::string_view>()(v.text());
  if (v.is_number()) {
    // 1, 1.0 and True are one key.
    const double d = v.as_double();
    return std::hash<double>()(d == 0 ? 0.0 : d);
  }
  if (v.is_tuple()) {
    size_t h = 0x345678;
    for (const Value& item : v.items()) h = h * 1000003 ^ hash(item, rt);
    return h;
  }
  if (!hashable(v, rt)) fail("unhashable type: '" + v.type_name() + "'");
  return 17;  // None, undefined and objects as keys are rare
}

}  // namespace tutti::jinja
