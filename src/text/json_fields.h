// Typed access to the fields of a tokenizer's JSON, with errors that name the file and the path of the field.
#pragma once

#include <string>

#include "base/error.h"
#include "base/json.h"

namespace tutti {

class JsonFields {
 public:
  // `where` names the value in messages: "tokenizer.json: pre_tokenizer".
  JsonFields(const SortedJson& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_object()) fail("expected an object, found " + std::string(value.type_name()));
  }

  bool has(const char* key) const {
    const auto it = value_.find(key);
    return it != value_.end() && !it->is_null();
  }
  const SortedJson& at(const char* key) const {
    const auto it = value_.find(key);
    if (it == value_.end()) fail("\"" + std::string(key) + "\" is missing");
    return *it;
  }
  JsonFields object(const char* key) const { return JsonFields(at(key), where_ + "." + key); }
  const SortedJson& array(const char* key) const {
    const SortedJson& v = at(key);
    if (!v.is_array()) wrong(key, "an array", v);
    return v;
  }
  std::string string(const char* key) const {
    const SortedJson& v = at(key);
    if (!v.is_string()) wrong(key, "a string", v);
    return v.get<std::string>();
  }
  std::string string(const char* key, const std::string& otherwise) const {
    return has(key) ? string(key) : otherwise;
  }
  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    const SortedJson& v = at(key);
    if (!v.is_boolean()) wrong(key, "true or false", v);
    return v.get<bool>();
  }
  int64_t integer(const char* key, int64_t low, int64_t high) const {
    const SortedJson& v = at(key);
    if (!v.is_number_integer()) wrong(key, "an integer", v);
    const auto n = v.get<int64_t>();
    if (n < low || n > high) {
      fail("\"" + std::string(key) + "\" is " + std::to_string(n) + ", expected " + std::to_string(low) + " to " +
           std::to_string(high));
    }
    return n;
  }
  const std::string& where() const { return where_; }
  [[noreturn]] void fail(const std::string& what) const { throw ConfigError(where_ + ": " + what); }

 private:
  [[noreturn]] void wrong(const char* key, const char* expected, const SortedJson& found) const {
    fail("\"" + std::string(key) + "\" must be " + expected + ", found " + found.type_name());
  }

  const SortedJson& value_;
  std::string where_;
};

}  // namespace tutti
