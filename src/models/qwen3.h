// Qwen3 (dense): Llama with a norm on each head of q and k.
#pragma once

#include "models/family.h"

namespace tutti {

extern const Family kQwen3Family;

}  // namespace tutti
