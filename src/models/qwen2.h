// Qwen2 and Qwen2.5: Llama with biases on q, k and v.
#pragma once

#include "models/family.h"

namespace tutti {

extern const Family kQwen2Family;

// The sliding window as Qwen configurations state it, for Qwen3 too.
void read_qwen_window(const Json& json, const std::string& source, ModelConfig& config);

}  // namespace tutti
