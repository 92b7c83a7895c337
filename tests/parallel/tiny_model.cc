#include "parallel/tiny_model.h"

#include <stdlib.h>

#include <filesystem>

#include "base/check.h"
#include "base/file.h"

namespace tutti::testing {

Json tiny_config(const std::string& architecture) {
  return {{"architectures", {architecture}},
          {"hidden_size", 96},
          {"intermediate_size", 192},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 6},
          {"num_key_value_heads", 3},
          {"head_dim", 32},
          {"vocab_size", 200},
          {"max_position_embeddings", 256},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"tie_word_embeddings", true},
          {"torch_dtype", "float32"}};
}

TinyModel::TinyModel(const Json& config) {
  std::string name = (std::filesystem::temp_directory_path() / "tutti-tiny-XXXXXX").string();
  CHECK(mkdtemp(name.data()) != nullptr);
  path_ = name;
  write_file(path_ + "/config.json", dump_json(config));
}

TinyModel::~TinyModel() { std::filesystem::remove_all(path_); }

}  // namespace tutti::testing
