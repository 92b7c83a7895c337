// The methods and attributes that templates may use on str, list, tuple and dict values. Stateless;
// any thread.
#pragma once

#include <optional>
#include <string>

#include "text/jinja_value.h"

namespace tutti::jinja {

// A bound method, or another attribute of a value that is no object; nothing when the type has none
// of that name. Methods that would modify a list or dict are found, and raise when used.
std::optional<Value> find_method(const Value& v, const std::string& name, Runtime& rt);
std::optional<Value> find_text_method(const Value& v, const std::string& name);

// Names like __class__ that exist on every Python object; the sandbox hides them.
bool is_python_internal(const std::string& name);
Value unsafe_attribute(const Value& v, const std::string& name);

// Arguments of a call, bound to the parameters of a signature like a Python function does it.
class BoundArgs {
 public:
  // `names`: the parameters; the first `required` must be given.
  BoundArgs(const char* function, Args args, std::vector<const char*> names, size_t required);

  bool has(size_t i) const { return values_[i].has_value(); }
  const Value& operator[](size_t i) const { return *values_[i]; }
  Value get(size_t i, Value otherwise) const { return has(i) ? *values_[i] : std::move(otherwise); }
  bool is_none(size_t i) const { return !has(i) || values_[i]->is_none(); }
  // Raise on values of another type.
  const std::string& text(size_t i) const;
  int64_t integer(size_t i, int64_t otherwise) const;
  bool flag(size_t i, bool otherwise, Runtime& rt) const;

 private:
  const char* function_;
  std::vector<const char*> names_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace tutti::jinja
