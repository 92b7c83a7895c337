#include "models/generation_config.h"

#include <filesystem>

#include "base/file.h"
#include "models/config_reader.h"

namespace tutti {

GenerationConfig parse_generation_config(const Json& json, const std::string& source) {
  const ConfigReader reader(json, source);
  GenerationConfig config;
  const auto number = [&](const char* key) -> std::optional<double> {
    if (!reader.has(key)) return std::nullopt;
    return reader.number(key);
  };
  const auto integer = [&](const char* key) -> std::optional<int32_t> {
    if (!reader.has(key)) return std::nullopt;
    return static_cast<int32_t>(reader.integer_between(key, 0, INT32_MAX));
  };
  config.temperature = number("temperature");
  config.top_p = number("top_p");
  config.top_k = integer("top_k");
  config.min_p = number("min_p");
  config.repetition_penalty = number("repetition_penalty");
  config.max_new_tokens = integer("max_new_tokens");
  config.eos_token_ids = reader.token_ids("eos_token_id");
  return config;
}

GenerationConfig read_generation_config(const std::string& model_path) {
  std::filesystem::path folder(model_path);
  if (!std::filesystem::is_directory(folder)) folder = folder.parent_path();
  const std::string path = (folder / "generation_config.json").string();
  if (!file_exists(path)) return {};
  return parse_generation_config(read_json_file(path), path);
}

}  // namespace tutti
