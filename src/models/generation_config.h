// The sampling defaults that a model brings along in generation_config.json. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace tutti {

// What the file says; a request's own fields go before, built-in defaults come after.
struct GenerationConfig {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int32_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int32_t> max_new_tokens;
  std::vector<int32_t> eos_token_ids;
};

// Throws ConfigError naming the key. `source` names the file.
GenerationConfig parse_generation_config(const Json& json, const std::string& source);
// From the model's folder; all empty when it has no such file (a GGUF model's folder is the file's).
GenerationConfig read_generation_config(const std::string& model_path);

}  // namespace tutti
