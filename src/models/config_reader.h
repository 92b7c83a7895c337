// Typed access to a model's configuration (config.json or GGUF metadata) with errors that name the key. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace tutti {

class ConfigReader {
 public:
  // `source` names the file in errors.
  ConfigReader(const Json& json, std::string source) : json_(json), source_(std::move(source)) {}

  // Whether the key is there and not null.
  bool has(const std::string& key) const;

  // Throw ConfigError when the key is missing or of another kind.
  int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;
  std::string text(const std::string& key) const;
  // A missing key gives the default; a wrong kind throws.
  int64_t integer(const std::string& key, int64_t otherwise) const;
  double number(const std::string& key, double otherwise) const;
  bool boolean(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  std::vector<double> numbers(const std::string& key) const;   // empty when missing
  std::vector<int32_t> token_ids(const std::string& key) const;  // one or a list; empty when missing
  // An object inside; nothing when missing or null.
  std::optional<ConfigReader> object(const std::string& key) const;

  // An integer in [low, high], or ConfigError.
  int64_t integer_between(const std::string& key, int64_t low, int64_t high) const;
  const std::string& source() const { return source_; }

 private:
  const Json& at(const std::string& key) const;
  [[noreturn]] void wrong_kind(const std::string& key, const char* expected) const;

  const Json& json_;
  std::string source_;
};

}  // namespace tutti
