// A folder with nothing but a config.json: with --load-format dummy it is a whole model, the same one at every layout.
#pragma once

#include <string>

#include "base/json.h"

namespace tutti::testing {

// Three layers, 6 heads of which 3 are KV heads, 96 feed-forward columns, 200 tokens.
Json tiny_config(const std::string& architecture = "LlamaForCausalLM");

// A fresh temporary folder with this config.json, removed with the object.
class TinyModel {
 public:
  explicit TinyModel(const Json& config);
  ~TinyModel();
  TinyModel(const TinyModel&) = delete;
  TinyModel& operator=(const TinyModel&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tutti::testing
