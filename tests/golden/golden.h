// The committed goldens of the tiny models (generate.py), for tests that run in the source folder.
#pragma once

#include <string>
#include <vector>

#include "tensor/tensor.h"
#include "weights/checkpoint.h"

namespace tutti::testing {

inline const std::vector<std::string>& golden_names() {
  static const std::vector<std::string> names = {"llama3", "llama_linear", "llama_yarn", "mistral",
                                                 "llama2", "qwen2",        "qwen3"};
  return names;
}

struct Golden {
  std::string folder;  // the checkpoint: config.json and model.safetensors
  std::vector<int32_t> prompt;
  Tensor logits;                   // F32 [prompt.size(), vocab_size], of every prompt position
  std::vector<int32_t> greedy;     // the 64 tokens that follow
  std::vector<float> greedy_gaps;  // lead of each over the second best, in logits
};

template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
  return std::vector<T>(tensor.data_as<T>(), tensor.data_as<T>() + tensor.numel());
}

inline Golden load_golden(const std::string& name) {
  const std::string folder = "tests/golden/models/" + name;
  const auto file = Checkpoint::open(folder + "/golden.safetensors");
  const auto& tensors = file->tensors();
  return {folder, values_of<int32_t>(tensors.at("prompt")), tensors.at("logits"),
          values_of<int32_t>(tensors.at("greedy")), values_of<float>(tensors.at("greedy_gaps"))};
}

}  // namespace tutti::testing
