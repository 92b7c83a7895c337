// The model families that this build knows. Any thread.
#pragma once

#include <span>
#include <string>

#include "models/family.h"

namespace tutti {

std::span<const Family* const> model_families();

// By the first known entry of config.json's "architectures", or by GGUF's general.architecture. Throws ConfigError
// "not supported: X; nearest: Y".
const Family& find_hf_family(const Json& config, const std::string& source);
const Family& find_gguf_family(const Json& metadata, const std::string& source);

}  // namespace tutti
