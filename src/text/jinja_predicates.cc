// The tests of jinja2: what may stand behind "is", and the names that select() and its kin take.
#include <algorithm>
#include <iterator>

#include "text/jinja_filters.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"
#include "text/jinja_split.h"
#include "text/jinja_unicode.h"

namespace tutti::jinja {
namespace {

void no_arguments(Args args) { const BoundArgs a("test", std::move(args), {}, 0); }

template <bool (*kIs)(const Value&)>
bool type_test(const Value& v, Args args, Runtime&) {
  no_arguments(std::move(args));
  return kIs(v);
}

template <Op kOp>
bool comparison(const Value& v, Args args, Runtime& rt) {
  const BoundArgs a("test", std::move(args), {"other"}, 1);
  return compare(kOp, v, a[0], rt);
}

bool remainder_is(const Value& v, const Value& divisor, int wanted, Runtime& rt) {
  return equals(binary(Op::kMod, v, divisor, rt), Value(wanted), rt);
}

bool odd(const Value& v, Args args, Runtime& rt) {
  no_arguments(std::move(args));
  return remainder_is(v, Value(2), 1, rt);
}

bool even(const Value& v, Args args, Runtime& rt) {
  no_arguments(std::move(args));
  return remainder_is(v, Value(2), 0, rt);
}

bool divisibleby(const Value& v, Args args, Runtime& rt) {
  const BoundArgs a("divisibleby", std::move(args), {"num"}, 1);
  return remainder_is(v, a[0], 0, rt);
}

bool lower(const Value& v, Args args, Runtime& rt) {
  no_arguments(std::move(args));
  return is_cased(to_text(v, rt), kLower);
}

bool upper(const Value& v, Args args, Runtime& rt) {
  no_arguments(std::move(args));
  return is_cased(to_text(v, rt), kUpper);
}

bool sequence(const Value& v, Args args, Runtime&) {
  no_arguments(std::move(args));
  return v.is_string() || v.is_list() || v.is_tuple() || v.is_dict() || v.is_range() ||
         v.is_undefined();
}

bool sameas(const Value& v, Args args, Runtime&) {
  const BoundArgs a("sameas", std::move(args), {"other"}, 1);
  return v.same_as(a[0]);
}

bool is_filter(const Value& v, Args args, Runtime& rt) {
  no_arguments(std::move(args));
  if (!hashable(v, rt)) fail("unhashable type: '" + v.type_name() + "'");
  return v.is_string() && find_filter(v.text()) != nullptr;
}

bool is_test(const Value& v, Args args, Runtime& rt) {
  no_arguments(std::move(args));
  if (!hashable(v, rt)) fail("unhashable type: '" + v.type_name() + "'");
  return v.is_string() && find_test(v.text()) != nullptr;
}

bool is_boolean(const Value& v) { return v.is_bool(); }
bool is_callable(const Value& v) {
  return v.is_undefined() || (v.is_object() && v.object().callable());
}
bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_false(const Value& v) { return v.is_bool() && !v.as_bool(); }
bool is_float(const Value& v) { return v.is_float(); }
bool is_integer(const Value& v) { return v.is_int(); }
bool is_iterable(const Value& v) { return iterable(v); }
bool is_mapping(const Value& v) { return v.is_dict(); }
bool is_markup(const Value& v) { return v.is_markup(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_true(const Value& v) { return v.is_bool() && v.as_bool(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }

struct Named {
  std::string_view name;
  Test test;
};

constexpr Named kTests[] = {
    {"!=", comparison<Op::kNe>},
    {"<", comparison<Op::kLt>},
    {"<=", comparison<Op::kLe>},
    {"==", comparison<Op::kEq>},
    {">", comparison<Op::kGt>},
    {">=", comparison<Op::kGe>},
    {"boolean", type_test<is_boolean>},
    {"callable", type_test<is_callable>},
    {"defined", type_test<is_defined>},
    {"divisibleby", divisibleby},
    {"eq", comparison<Op::kEq>},
    {"equalto", comparison<Op::kEq>},
    {"escaped", type_test<is_markup>},
    {"even", even},
    {"false", type_test<is_false>},
    {"filter", is_filter},
    {"float", type_test<is_float>},
    {"ge", comparison<Op::kGe>},
    {"greaterthan", comparison<Op::kGt>},
    {"gt", comparison<Op::kGt>},
    {"in", comparison<Op::kIn>},
    {"integer", type_test<is_integer>},
    {"iterable", type_test<is_iterable>},
    {"le", comparison<Op::kLe>},
    {"lessthan", comparison<Op::kLt>},
    {"lower", lower},
    {"lt", comparison<Op::kLt>},
    {"mapping", type_test<is_mapping>},
    {"ne", comparison<Op::kNe>},
    {"none", type_test<is_none>},
    {"number", type_test<is_number>},
    {"odd", odd},
    {"sameas", sameas},
    {"sequence", sequence},
    {"string", type_test<is_string>},
    {"test", is_test},
    {"true", type_test<is_true>},
    {"undefined", type_test<is_undefined>},
    {"upper", upper},
};

}  // namespace

Test find_test(std::string_view name) {
  const auto it = std::find_if(std::begin(kTests), std::end(kTests),
                               [&](const Named& t) { return t.name == name; });
  return it == std::end(kTests) ? nullptr : it->test;
}

bool apply_test(const std::string& name, const Value& input, Args args, Runtime& rt) {
  const Runtime::Depth depth(rt);
  rt.step();
  const Test test = find_test(name);
  if (test == nullptr) fail("there is no test " + quote(name));
  return test(input, std::move(args), rt);
}

}  // namespace tutti::jinja
