// Q4_0: 32 elements, { half d; uint8 q[16] }, byte i holds elements i (low) and i + 16 (high), value = d * (q - 8).
#pragma once

#include "ops/cpu/formats/planes.h"

namespace tutti::cpu {

struct Q4_0 : BlockFormat<DType::kQ4_0, 32, Bits4, HalfScale<false>, 3> {
  static void decode(const uint8_t* block, DecodedBlock& out) {
    std::memcpy(&out.d, block, 2);
    for (int i = 0; i < 16; ++i) {
      out.codes[i] = block[2 + i] & 15;
      out.codes[i + 16] = block[2 + i] >> 4;
    }
  }
};

}  // namespace tutti::cpu
