// Which model files a node has, cheaply: names, sizes and a hash of each file's first, middle and last block. Enough to
// tell a missing, cut or different file before gigabytes are read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

struct ModelFile {
  std::string name;
  int64_t size = 0;
  std::string hash;
  bool operator==(const ModelFile&) const = default;
};

// The files of a model folder that change its answers (weights, configuration, tokenizer), or the one file of `path`,
// or all parts of a multi-part GGUF; sorted by name. Throws IoError naming the path.
std::vector<ModelFile> list_model_files(const std::string& path);

int64_t total_size(const std::vector<ModelFile>& files);

// "118, 470.2 GB"
std::string describe(const std::vector<ModelFile>& files);

// Nothing when both nodes have the same files; else what to print for each ("118, 470.2 GB", "117: x is missing").
std::optional<std::pair<std::string, std::string>> compare_model_files(const std::vector<ModelFile>& head,
                                                                       const std::vector<ModelFile>& node);

}  // namespace tutti
