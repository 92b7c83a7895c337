// "attribute" arguments of filters: a path like "user.names.0" into each item. Stateless once made.
#pragma once

#include <vector>

#include "text/jinja_value.h"

namespace tutti::jinja {

// Text in lower case, other values as they are.
Value ignore_case(const Value& v);

class AttributeGetter {
 public:
  // `attribute`: None for the item itself, a path of names and numbers, or a single key.
  // `otherwise` (unless None) stands in for parts that are undefined.
  AttributeGetter(const Value& attribute, Runtime& rt, bool fold_case = false,
                  Value otherwise = None{});
  Value get(const Value& item, Runtime& rt) const;

 private:
  std::vector<Value> path_;
  bool fold_case_;
  Value otherwise_;
};

// One getter per path of a list like "age,name".
std::vector<AttributeGetter> attribute_getters(const Value& attributes, Runtime& rt,
                                               bool fold_case);

}  // namespace tutti::jinja
