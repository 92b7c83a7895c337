#include "models/qwen3.h"

#include "models/config_reader.h"
#include "models/qwen2.h"

namespace tutti {
namespace {

constexpr std::string_view kHf[] = {"Qwen3ForCausalLM"};
constexpr std::string_view kGguf[] = {"qwen3"};

ModelConfig read_hf(const Json& json, const std::string& source) {
  ModelConfig config = read_common_hf(json, source);
  const bool bias = ConfigReader(json, source).boolean("attention_bias", false);
  config.qkv_bias = bias;
  config.output_bias = bias;
  config.qk_norm = true;
  read_qwen_window(json, source, config);
  return config;
}

ModelConfig read_gguf(const Json& metadata, const std::string& source) {
  ModelConfig config = read_common_gguf(metadata, source);
  config.qk_norm = true;
  return config;
}

}  // namespace

const Family kQwen3Family = {"qwen3", kHf, kGguf, read_hf, read_gguf, common_hf_name, common_gguf_name};

}  // namespace tutti
