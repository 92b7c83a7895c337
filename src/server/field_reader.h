// Typed reading of a request's JSON fields. Absent and null are the same, as in the OpenAI API. A wrong type
// or a value out of range throws InvalidRequest that names the field, what was expected and what was found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace tutti {

class FieldReader {
 public:
  // `object` outlives the reader. `where` is put before field names: "stream_options.".
  explicit FieldReader(const Json& object, std::string where = "");

  // nullptr when absent or null.
  const Json* find(const char* name) const;
  // Present, even if null.
  bool has(const char* name) const { return object_.contains(name); }

  std::optional<bool> boolean(const char* name) const;
  std::optional<int64_t> integer(const char* name, int64_t min, int64_t max) const;
  std::optional<double> number(const char* name, double min, double max) const;
  std::optional<std::string> string(const char* name) const;
  // A string stands for a list of one.
  std::vector<std::string> strings(const char* name) const;
  std::vector<int32_t> token_ids(const char* name, int64_t vocab_size) const;
  const Json* object(const char* name) const;
  const Json* array(const char* name) const;

  [[noreturn]] void fail(const char* name, const std::string& expected, const Json& found) const;

 private:
  const Json& object_;
  const std::string where_;
};

// A value for messages: short, whatever it is.
std::string describe_json(const Json& value);
// Reads an array of token ids within the vocabulary; `param` names it in errors.
std::vector<int32_t> read_token_ids(const Json& array, const std::string& param, int64_t vocab_size);

}  // namespace tutti
