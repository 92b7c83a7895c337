// Q2_K: 256 elements, { uint8 scales[16]; uint8 q[64]; half d, dmin }. A scale byte holds the scale (low half) and the
// minimum (high half) of 16 elements: value = d * scale * q - dmin * min. Each 128 elements use 32 bytes of q, two bits
// for each 32 elements.
#pragma once

#include "ops/cpu/formats/planes.h"

namespace tutti::cpu {

struct Q2_K : BlockFormat<DType::kQ2_K, 256, Bits2, SuperScale<16, true>, -1> {
  static void decode(const uint8_t* block, DecodedBlock& out) {
    std::memcpy(&out.d, block + 80, 2);
    std::memcpy(&out.m, block + 82, 2);
    for (int g = 0; g < 16; ++g) {
      out.scales[g] = static_cast<int8_t>(block[g] & 15);
      out.mins[g] = static_cast<int8_t>(block[g] >> 4);
    }
    for (int i = 0; i < 256; ++i) out.codes[i] = block[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
  }
};

}  // namespace tutti::cpu
