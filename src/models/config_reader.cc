#include "models/config_reader.h"

#include "base/error.h"

namespace tutti {

bool ConfigReader::has(const std::string& key) const {
  const auto it = json_.find(key);
  return it != json_.end() && !it->is_null();
}

const Json& ConfigReader::at(const std::string& key) const {
  if (!has(key)) throw ConfigError(source_ + ": \"" + key + "\" is missing");
  return *json_.find(key);
}

void ConfigReader::wrong_kind(const std::string& key, const char* expected) const {
  throw ConfigError(source_ + ": \"" + key + "\" must be " + expected + ", found " + dump_json(at(key)).substr(0, 60));
}

int64_t ConfigReader::integer(const std::string& key) const {
  const Json& value = at(key);
  // Some tools write whole numbers as 4096.0.
  if (value.is_number_float() && value.get<double>() == static_cast<double>(static_cast<int64_t>(value.get<double>()))) {
    return static_cast<int64_t>(value.get<double>());
  }
  if (!value.is_number_integer()) wrong_kind(key, "an integer");
  return value.get<int64_t>();
}

double ConfigReader::number(const std::string& key) const {
  const Json& value = at(key);
  if (!value.is_number()) wrong_kind(key, "a number");
  return value.get<double>();
}

std::string ConfigReader::text(const std::string& key) const {
  const Json& value = at(key);
  if (!value.is_string()) wrong_kind(key, "a string");
  return value.get<std::string>();
}

int64_t ConfigReader::integer(const std::string& key, int64_t otherwise) const { return has(key) ? integer(key) : otherwise; }
double ConfigReader::number(const std::string& key, double otherwise) const { return has(key) ? number(key) : otherwise; }
std::string ConfigReader::text(const std::string& key, const std::string& otherwise) const {
  return has(key) ? text(key) : otherwise;
}

bool ConfigReader::boolean(const std::string& key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!at(key).is_boolean()) wrong_kind(key, "true or false");
  return at(key).get<bool>();
}

std::vector<double> ConfigReader::numbers(const std::string& key) const {
  std::vector<double> values;
  if (!has(key)) return values;
  if (!at(key).is_array()) wrong_kind(key, "a list of numbers");
  for (const Json& value : at(key)) {
    if (!value.is_number()) wrong_kind(key, "a list of numbers");
    values.push_back(value.get<double>());
  }
  return values;
}

std::vector<int32_t> ConfigReader::token_ids(const std::string& key) const {
  std::vector<int32_t> ids;
  if (!has(key)) return ids;
  const Json& value = at(key);
  const auto add = [&](const Json& id) {
    if (!id.is_number_integer()) wrong_kind(key, "a token id or a list of them");
    ids.push_back(id.get<int32_t>());
  };
  if (value.is_array()) {
    for (const Json& id : value) add(id);
  } else {
    add(value);
  }
  return ids;
}

std::optional<ConfigReader> ConfigReader::object(const std::string& key) const {
  if (!has(key)) return std::nullopt;
  if (!at(key).is_object()) wrong_kind(key, "an object");
  return ConfigReader(at(key), source_ + ", " + key);
}

int64_t ConfigReader::integer_between(const std::string& key, int64_t low, int64_t high) const {
  const int64_t value = integer(key);
  if (value < low || value > high) {
    throw ConfigError(source_ + ": \"" + key + "\" is " + std::to_string(value) + ", expected " + std::to_string(low) +
                      " to " + std::to_string(high));
  }
  return value;
}

}  // namespace tutti
