#include "models/mistral.h"

#include "models/config_reader.h"

namespace tutti {
namespace {

constexpr std::string_view kHf[] = {"MistralForCausalLM"};

ModelConfig read_hf(const Json& json, const std::string& source) {
  ModelConfig config = read_common_hf(json, source);
  config.sliding_window = ConfigReader(json, source).integer("sliding_window", 0);
  return config;
}

}  // namespace

// GGUF files of Mistral models call themselves "llama".
const Family kMistralFamily = {"mistral", kHf, {}, read_hf, read_common_gguf, common_hf_name, common_gguf_name};

}  // namespace tutti
