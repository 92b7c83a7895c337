#include "models/qwen2.h"

#include "models/config_reader.h"

namespace tutti {
namespace {

constexpr std::string_view kHf[] = {"Qwen2ForCausalLM"};
constexpr std::string_view kGguf[] = {"qwen2"};

ModelConfig read_hf(const Json& json, const std::string& source) {
  ModelConfig config = read_common_hf(json, source);
  config.qkv_bias = true;
  read_qwen_window(json, source, config);
  return config;
}

ModelConfig read_gguf(const Json& metadata, const std::string& source) {
  ModelConfig config = read_common_gguf(metadata, source);
  config.qkv_bias = true;
  return config;
}

}  // namespace

void read_qwen_window(const Json& json, const std::string& source, ModelConfig& config) {
  const ConfigReader reader(json, source);
  if (!reader.boolean("use_sliding_window", false)) return;
  config.sliding_window = reader.integer("sliding_window", 0);
  config.first_sliding_layer = static_cast<int>(reader.integer("max_window_layers", 0));
}

const Family kQwen2Family = {"qwen2", kHf, kGguf, read_hf, read_gguf, common_hf_name, common_gguf_name};

}  // namespace tutti
