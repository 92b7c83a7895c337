// Mistral 7B and its kin: Llama with an optional sliding window.
#pragma once

#include "models/family.h"

namespace tutti {

extern const Family kMistralFamily;

}  // namespace tutti
