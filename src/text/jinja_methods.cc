#include "text/jinja_methods.h"

#include <algorithm>
#include <array>

#include "text/jinja_ops.h"

namespace tutti::jinja {
namespace {

using Body = Value (*)(const Value& self, Args args, Runtime& rt);

Value bind(const char* name, const Value& self, Body body) {
  return make_function(name, self.depth(), [self, body](Args args, Runtime& rt) {
    return body(self, std::move(args), rt);
  });
}

struct Method {
  const char* name;
  Body body;
};

template <size_t N>
std::optional<Value> find_in(const std::array<Method, N>& methods, const Value& self,
                             const std::string& name) {
  for (const Method& m : methods) {
    if (name == m.name) return bind(m.name, self, m.body);
  }
  return std::nullopt;
}

template <size_t N>
bool is_one_of(const std::array<const char*, N>& names, const std::string& name) {
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return name == n; });
}

Value view_of(const Value& self, DictView::Kind kind) {
  return Value(std::make_shared<const DictView>(DictView{kind, self.dict_ptr()}));
}

Value dict_get(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("get", std::move(args), {"key", "default"}, 1);
  const Value* found = self.dict().find(a[0], rt);
  return found ? *found : a.get(1, None{});
}

Value dict_keys(const Value& self, Args args, Runtime&) {
  const BoundArgs a("keys", std::move(args), {}, 0);
  return view_of(self, DictView::Kind::kKeys);
}

Value dict_values(const Value& self, Args args, Runtime&) {
  const BoundArgs a("values", std::move(args), {}, 0);
  return view_of(self, DictView::Kind::kValues);
}

Value dict_items(const Value& self, Args args, Runtime&) {
  const BoundArgs a("items", std::move(args), {}, 0);
  return view_of(self, DictView::Kind::kItems);
}

Value copy(const Value& self, Args args, Runtime&) {
  const BoundArgs a("copy", std::move(args), {}, 0);
  return self;  // values are immutable
}

Value dict_fromkeys(const Value&, Args args, Runtime& rt) {
  const BoundArgs a("fromkeys", std::move(args), {"iterable", "value"}, 1);
  Dict out;
  for (Value& key : collect(a[0], rt)) out.set(std::move(key), a.get(1, None{}), rt);
  return make_dict(std::move(out));
}

Value sequence_index(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("index", std::move(args), {"value", "start", "stop"}, 1);
  const Value part = get_slice(self, Value(int64_t{0}), a.get(2, None{}), None{}, rt);
  const auto size = static_cast<int64_t>(part.items().size());
  int64_t i = a.integer(1, 0);
  if (i < 0) i = std::max<int64_t>(0, i + static_cast<int64_t>(self.items().size()));
  for (; i < size; ++i) {
    if (equals(part.items()[i], a[0], rt)) return i;
  }
  fail(repr(a[0], rt) + " is not in " + self.type_name());
}

Value sequence_count(const Value& self, Args args, Runtime& rt) {
  const BoundArgs a("count", std::move(args), {"value"}, 1);
  int64_t count = 0;
  for (const Value& v : self.items()) count += equals(v, a[0], rt);
  return count;
}

Value is_integer(const Value& self, Args args, Runtime&) {
  const BoundArgs a("is_integer", std::move(args), {}, 0);
  const double d = self.as_double();
  return d == static_cast<double>(static_cast<Int>(d));
}

constexpr std::array<Method, 6> kDictMethods{{{"get", dict_get},
                                              {"keys", dict_keys},
                                              {"values", dict_values},
                                              {"items", dict_items},
                                              {"copy", copy},
                                              {"fromkeys", dict_fromkeys}}};
constexpr std::array<Method, 2> kSequenceMethods{
    {{"index", sequence_index}, {"count", sequence_count}}};
constexpr std::array<const char*, 5> kDictModifiers{"clear", "pop", "popitem", "setdefault",
                                                    "update"};
constexpr std::array<const char*, 8> kListModifiers{"append", "clear", "pop",    "reverse",
                                                    "insert", "sort",  "extend", "remove"};

std::optional<Value> range_attribute(const Range& range, const std::string& name) {
  if (name == "start") return range.start;
  if (name == "stop") return range.stop;
  if (name == "step") return range.step;
  return std::nullopt;
}

std::optional<Value> number_attribute(const Value& v, const std::string& name) {
  if (name == "real") return v.is_bool() ? Value(v.as_int()) : v;
  if (name == "imag") return v.is_float() ? Value(0.0) : Value(0);
  if (v.is_integral() && name == "numerator") return Value(v.as_int());
  if (v.is_integral() && name == "denominator") return Value(1);
  if (v.is_float() && name == "is_integer") return bind("is_integer", v, is_integer);
  return std::nullopt;
}

}  // namespace

bool is_python_internal(const std::string& name) {
  static constexpr std::array<const char*, 18> kNames{
      "__class__",   "__init__",         "__doc__",          "__new__",       "__repr__",
      "__str__",     "__eq__",           "__ne__",           "__hash__",      "__dir__",
      "__format__",  "__getattribute__", "__reduce__",       "__reduce_ex__", "__setattr__",
      "__delattr__", "__sizeof__",       "__init_subclass__"};
  return is_one_of(kNames, name);
}

Value unsafe_attribute(const Value& v, const std::string& name) {
  return Value::undefined("access to attribute " + quote(name) + " of " + quote(v.type_name()) +
                          " object is unsafe.");
}

std::optional<Value> find_method(const Value& v, const std::string& name, Runtime&) {
  if (v.is_string()) return find_text_method(v, name);
  if (v.is_dict()) {
    if (is_one_of(kDictModifiers, name)) return unsafe_attribute(v, name);
    return find_in(kDictMethods, v, name);
  }
  if (v.is_list()) {
    if (is_one_of(kListModifiers, name)) return unsafe_attribute(v, name);
    if (name == "copy") return bind("copy", v, copy);
    return find_in(kSequenceMethods, v, name);
  }
  if (v.is_tuple()) {
    if (v.tuple().group && name == "grouper") return v.items()[0];
    if (v.tuple().group && name == "list") return v.items()[1];
    return find_in(kSequenceMethods, v, name);
  }
  if (v.is_range()) return range_attribute(v.range(), name);
  if (v.is_number()) return number_attribute(v, name);
  return std::nullopt;
}

BoundArgs::BoundArgs(const char* function, Args args, std::vector<const char*> names,
                     size_t required)
    : function_(function), names_(std::move(names)), values_(names_.size()) {
  if (args.positional.size() > names_.size()) {
    fail(std::string(function) + "() takes at most " + std::to_string(names_.size()) +
         " arguments (" + std::to_string(args.positional.size()) + " given)");
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = std::move(args.positional[i]);
  for (auto& [name, value] : args.named) {
    const auto it =
        std::find_if(names_.begin(), names_.end(), [&](const char* n) { return name == n; });
    if (it == names_.end())
      fail(std::string(function) + "() got an unexpected keyword argument '" + name + "'");
    auto& slot = values_[it - names_.begin()];
    if (slot) fail(std::string(function) + "() got multiple values for argument '" + name + "'");
    slot = std::move(value);
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i])
      fail(std::string(function) + "() missing required argument '" + names_[i] + "'");
  }
}

const std::string& BoundArgs::text(size_t i) const {
  if (values_[i]->is_undefined()) fail(values_[i]->undefined_message());
  if (!values_[i]->is_string()) {
    fail(std::string(function_) + "(): argument '" + names_[i] + "' must be str, not " +
         values_[i]->type_name());
  }
  return values_[i]->text();
}

int64_t BoundArgs::integer(size_t i, int64_t otherwise) const {
  return has(i) ? as_index(*values_[i]) : otherwise;
}

bool BoundArgs::flag(size_t i, bool otherwise, Runtime& rt) const {
  return has(i) ? truthy(*values_[i], rt) : otherwise;
}

}  // namespace tutti::jinja
