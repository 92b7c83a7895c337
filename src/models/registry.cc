#include "models/registry.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/nearest_name.h"
#include "models/config_reader.h"
#include "models/llama.h"
#include "models/mistral.h"
#include "models/qwen2.h"
#include "models/qwen3.h"

namespace tutti {
namespace {

using Names = std::span<const std::string_view> Family::*;

const Family* find(Names names, std::string_view architecture) {
  for (const Family* family : model_families()) {
    const auto& list = family->*names;
    if (std::find(list.begin(), list.end(), architecture) != list.end()) return family;
  }
  return nullptr;
}

[[noreturn]] void not_supported(Names names, const std::string& architecture, const std::string& source) {
  std::vector<std::string> known;
  std::string all;
  for (const Family* family : model_families()) {
    for (std::string_view name : family->*names) {
      known.emplace_back(name);
      all += (all.empty() ? "" : ", ") + std::string(name);
    }
  }
  throw ConfigError(source + ": architecture not supported: " + architecture +
                    "; nearest: " + nearest_name(architecture, known) + " (supported: " + all + ")");
}

}  // namespace

std::span<const Family* const> model_families() {
  static constexpr std::array<const Family*, 4> kFamilies = {&kLlamaFamily, &kMistralFamily, &kQwen2Family, &kQwen3Family};
  return kFamilies;
}

const Family& find_hf_family(const Json& config, const std::string& source) {
  const auto list = config.find("architectures");
  if (list == config.end() || !list->is_array() || list->empty()) {
    throw ConfigError(source + ": \"architectures\" is missing: is this the config.json of a language model?");
  }
  for (const Json& name : *list) {
    if (!name.is_string()) continue;
    if (const Family* family = find(&Family::hf_architectures, name.get<std::string>())) return *family;
  }
  not_supported(&Family::hf_architectures, list->front().is_string() ? list->front().get<std::string>() : dump_json(*list), source);
}

const Family& find_gguf_family(const Json& metadata, const std::string& source) {
  const std::string name = ConfigReader(metadata, source).text("general.architecture");
  if (const Family* family = find(&Family::gguf_architectures, name)) return *family;
  not_supported(&Family::gguf_architectures, name, source);
}

}  // namespace tutti
