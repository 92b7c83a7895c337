// Q4_1: 32 elements, { half d, m; uint8 q[16] }, byte i holds elements i (low) and i + 16 (high), value = d * q + m.
#pragma once

#include "ops/cpu/formats/planes.h"

namespace tutti::cpu {

struct Q4_1 : BlockFormat<DType::kQ4_1, 32, Bits4, HalfScale<true>, -1> {
  static void decode(const uint8_t* block, DecodedBlock& out) {
    std::memcpy(&out.d, block, 2);
    std::memcpy(&out.m, block + 2, 2);
    for (int i = 0; i < 16; ++i) {
      out.codes[i] = block[4 + i] & 15;
      out.codes[i + 16] = block[4 + i] >> 4;
    }
  }
};

}  // namespace tutti::cpu
