#include "server/field_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"

namespace tutti {
namespace {

// 1 and 1.0, but neither true nor "1".
std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max())
    return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::abs(number) > 9e15 || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

template <typename T>
std::string range_text(const char* what, T min, T max) {
  const bool open = max == std::numeric_limits<T>::max();
  return open ? fmt::format("{} of at least {}", what, min) : fmt::format("{} from {} to {}", what, min, max);
}

}  // namespace

std::string describe_json(const Json& value) {
  constexpr size_t kMaxShown = 60;
  if (value.is_object()) return "an object";
  if (value.is_array()) return value.empty() ? "an empty list" : "a list";
  std::string text = dump_json(value);
  if (text.size() > kMaxShown) {
    size_t end = kMaxShown;
    while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // not within a character
    text = text.substr(0, end) + "...";
  }
  return text;
}

FieldReader::FieldReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

const Json* FieldReader::find(const char* name) const {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void FieldReader::fail(const char* name, const std::string& expected, const Json& found) const {
  throw InvalidRequest(fmt::format("`{}{}` must be {}, not {}", where_, name, expected, describe_json(found)),
                       where_ + name);
}

std::optional<bool> FieldReader::boolean(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail(name, "true or false", *value);
  return value->get<bool>();
}

std::optional<int64_t> FieldReader::integer(const char* name, int64_t min, int64_t max) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = as_integer(*value);
  if (!number || *number < min || *number > max) fail(name, range_text("an integer", min, max), *value);
  return number;
}

std::optional<double> FieldReader::number(const char* name, double min, double max) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= min && number <= max)) fail(name, range_text("a number", min, max), *value);
  return number;
}

std::optional<std::string> FieldReader::string(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(name, "a string", *value);
  return value->get<std::string>();
}

std::vector<std::string> FieldReader::strings(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) fail(name, "a string or a list of strings", *value);
  std::vector<std::string> out;
  for (const Json& item : *value) {
    if (!item.is_string()) fail(name, "a string or a list of strings", item);
    out.push_back(item.get<std::string>());
  }
  return out;
}

std::vector<int32_t> read_token_ids(const Json& array, const std::string& param, int64_t vocab_size) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const Json& item : array) {
    const std::optional<int64_t> id = as_integer(item);
    if (!id || *id < 0 || *id >= vocab_size) {
      throw InvalidRequest(fmt::format("`{}` must hold token ids from 0 to {}, not {}", param, vocab_size - 1,
                                       describe_json(item)),
                           param);
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

std::vector<int32_t> FieldReader::token_ids(const char* name, int64_t vocab_size) const {
  const Json* value = array(name);
  return value == nullptr ? std::vector<int32_t>() : read_token_ids(*value, where_ + name, vocab_size);
}

const Json* FieldReader::object(const char* name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_object()) fail(name, "an object", *value);
  return value;
}

const Json* FieldReader::array(const char* name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_array()) fail(name, "a list", *value);
  return value;
}

}  // namespace tutti
