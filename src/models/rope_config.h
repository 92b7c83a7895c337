// Reads the rotary embedding's settings, whose spelling has changed over the years. Any thread.
#pragma once

#include "config/model_config.h"
#include "models/config_reader.h"

namespace tutti {

// "rope_theta" with "rope_scaling", or "rope_parameters" with both. Extends max_position_embeddings by the scaling.
void read_rope_hf(const ConfigReader& reader, ModelConfig& config);
// `arch` is the key prefix, "llama.".
void read_rope_gguf(const ConfigReader& reader, const std::string& arch, ModelConfig& config);

}  // namespace tutti
