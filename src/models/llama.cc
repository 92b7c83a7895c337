#include "models/llama.h"

#include "models/config_reader.h"

namespace tutti {
namespace {

constexpr std::string_view kHf[] = {"LlamaForCausalLM", "LLaMAForCausalLM"};
constexpr std::string_view kGguf[] = {"llama"};

ModelConfig read_hf(const Json& json, const std::string& source) {
  ModelConfig config = read_common_hf(json, source);
  const bool bias = ConfigReader(json, source).boolean("attention_bias", false);
  config.qkv_bias = bias;
  config.output_bias = bias;
  return config;
}

ModelConfig read_gguf(const Json& metadata, const std::string& source) {
  ModelConfig config = read_common_gguf(metadata, source);
  // The converter reorders the rows of q and k of this architecture so that rotated pairs are neighbours.
  config.rope.layout = RopeLayout::kInterleaved;
  return config;
}

}  // namespace

const Family kLlamaFamily = {"llama", kHf, kGguf, read_hf, read_gguf, common_hf_name, common_gguf_name};

}  // namespace tutti
