// What a model family adds to the one decoder: how its configuration is read and what its files call the weights.
// Plain functions, no state. Any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "config/model_config.h"

namespace tutti {

struct Family {
  std::string_view name;                                  // "qwen3"
  std::span<const std::string_view> hf_architectures;     // "Qwen3ForCausalLM"
  std::span<const std::string_view> gguf_architectures;   // "qwen3"
  // From a Hugging Face config.json; `source` names it in errors. Throw ConfigError.
  ModelConfig (*read_hf)(const Json& config, const std::string& source);
  // From GGUF metadata.
  ModelConfig (*read_gguf)(const Json& metadata, const std::string& source);
  // The files' names for a parameter ("layers.3.attention.q.weight").
  std::string (*hf_name)(std::string_view parameter);
  std::string (*gguf_name)(std::string_view parameter);
};

// What most decoder-only families share. A family's own file starts from these and changes what differs.
ModelConfig read_common_hf(const Json& config, const std::string& source);
ModelConfig read_common_gguf(const Json& metadata, const std::string& source);
std::string common_hf_name(std::string_view parameter);
std::string common_gguf_name(std::string_view parameter);

}  // namespace tutti
