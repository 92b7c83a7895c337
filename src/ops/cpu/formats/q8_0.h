// Q8_0: 32 elements, { half d; int8 q[32] }, value = d * q.
#pragma once

#include "ops/cpu/formats/planes.h"

namespace tutti::cpu {

struct Q8_0 : BlockFormat<DType::kQ8_0, 32, Bits8, HalfScale<false>, 7> {
  static void decode(const uint8_t* block, DecodedBlock& out) {
    std::memcpy(&out.d, block, 2);
    for (int i = 0; i < 32; ++i) out.codes[i] = block[2 + i] ^ 0x80;  // two's complement -> plus 128
  }
};

}  // namespace tutti::cpu
