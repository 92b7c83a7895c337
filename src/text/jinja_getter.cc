#include "text/jinja_getter.h"

#include <algorithm>

#include "text/jinja_ops.h"
#include "text/jinja_split.h"
#include "text/jinja_unicode.h"

namespace tutti::jinja {

Value ignore_case(const Value& v) { return v.is_string() ? Value(to_lower(v.text())) : v; }

AttributeGetter::AttributeGetter(const Value& attribute, Runtime& rt, bool fold_case,
                                 Value otherwise)
    : fold_case_(fold_case), otherwise_(std::move(otherwise)) {
  if (attribute.is_none()) return;
  if (!attribute.is_string()) {
    path_.push_back(attribute);
    return;
  }
  rt.text(attribute.text().size());
  for (const auto part : split_on(attribute.text(), ".", -1, false)) {
    const bool number =
        !part.empty() && part.size() < 18 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    path_.push_back(number ? Value(static_cast<int64_t>(std::stoll(std::string(part))))
                           : Value(part));
  }
}

Value AttributeGetter::get(const Value& item, Runtime& rt) const {
  Value v = item;
  for (const Value& part : path_) {
    v = get_item(v, part, rt);
    if (v.is_undefined() && !otherwise_.is_none()) v = otherwise_;
  }
  return fold_case_ ? ignore_case(v) : v;
}

std::vector<AttributeGetter> attribute_getters(const Value& attributes, Runtime& rt,
                                               bool fold_case) {
  std::vector<AttributeGetter> out;
  if (!attributes.is_string()) {
    out.emplace_back(attributes, rt, fold_case);
    return out;
  }
  for (const auto path : split_on(attributes.text(), ",", -1, false))
    out.emplace_back(Value(path), rt, fold_case);
  return out;
}

}  // namespace tutti::jinja
