// A model's weight files as one map from name to tensor. Files are mapped, never read whole: a rank touches only the
// pages of its own slices. Thread-safe once open.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "tensor/tensor.h"

namespace tutti {

enum class LoadFormat { kAuto, kSafetensors, kGguf, kDummy };

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  // `path`: a folder with *.safetensors (sharded by model.safetensors.index.json, or not), a folder with one GGUF
  // model, or a .gguf file (any part of a multi-part one). Throws IoError naming the file, what was expected and found.
  static std::unique_ptr<Checkpoint> open(const std::string& path, LoadFormat format = LoadFormat::kAuto);

  // Tensors by the file's names, rows first ([out_features, in_features]), as views of the maps.
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  // nullptr when there is none of this name.
  const Tensor* find(const std::string& name) const;

  // GGUF key/value metadata (arrays of strings stay JSON arrays); empty for safetensors.
  const Json& metadata() const { return metadata_; }
  bool is_gguf() const { return is_gguf_; }
  const std::vector<std::string>& files() const { return files_; }
  int64_t total_bytes() const { return total_bytes_; }  // of all tensors

  // The pages of a loaded (repacked) tensor no longer count as this process's memory.
  virtual void release(const Tensor& view) const = 0;

 protected:
  std::map<std::string, Tensor> tensors_;
  Json metadata_ = Json::object();
  bool is_gguf_ = false;
  std::vector<std::string> files_;
  int64_t total_bytes_ = 0;
};

}  // namespace tutti
