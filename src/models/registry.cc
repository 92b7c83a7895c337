#include "models/registry.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "models/config_reader.h"
#include "models/llama.h"
#include "models/mistral.h"
#include "models/qwen2.h"
#include "models/qwen3.h"

namespace tutti {
namespace {

// Levenshtein distance.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

using Names = std::span<const std::string_view> Family::*;

const Family* find(Names names, std::string_view architecture) {
  for (const Family* family : model_families()) {
    const auto& list = family->*names;
    if (std::find(list.begin(), list.end(), architecture) != list.end()) return family;
  }
  return nullptr;
}

[[noreturn]] void not_supported(Names names, const std::string& architecture, const std::string& source) {
  std::string_view nearest;
  size_t best = static_cast<size_t>(-1);
  std::string all;
  for (const Family* family : model_families()) {
    for (std::string_view name : family->*names) {
      if (const size_t d = distance(architecture, name); d < best) {
        best = d;
        nearest = name;
      }
      all += (all.empty() ? "" : ", ") + std::string(name);
    }
  }
  throw ConfigError(source + ": architecture not supported: " + architecture + "; nearest: " + std::string(nearest) +
                    " (supported: " + all + ")");
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
