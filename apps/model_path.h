// Where a model is on this machine. Main thread, at start.
#pragma once

#include <string>

namespace tutti {

// `name` is a folder, a .gguf file, or "owner/name" in the Hugging Face cache (HF_HOME, HF_HUB_CACHE). Throws ConfigError
// with near names when there is none. `flag` has given the name, if it is not the model's.
std::string find_model(const std::string& name, const std::string& revision, const std::string& flag = "");

}  // namespace tutti
