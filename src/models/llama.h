// Llama 1 to 3.x and models of the same shape (SmolLM2, Yi, ...).
#pragma once

#include "models/family.h"

namespace tutti {

extern const Family kLlamaFamily;

}  // namespace tutti
