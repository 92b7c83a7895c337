// Q3_K: 256 elements, { uint8 high[32]; uint8 q[64]; uint8 scales[12]; half d }. Two low bits as in Q2_K; bit i / 32 of
// high[i % 32] is the third. 16 scales of six bits: value = d * (scale - 32) * (q - 4).
#pragma once

#include "ops/cpu/formats/planes.h"

namespace tutti::cpu {

struct Q3_K : BlockFormat<DType::kQ3_K, 256, Joined<Bits2, Bits1, 2>, SuperScale<16, false>, 2> {
  static void decode(const uint8_t* block, DecodedBlock& out) {
    const uint8_t *high = block, *q = block + 32, *scales = block + 96;
    std::memcpy(&out.d, block + 108, 2);
    for (int g = 0; g < 16; ++g) {
      const int low4 = scales[g % 8] >> (g / 8 * 4) & 15, high2 = scales[8 + g % 4] >> (g / 4 * 2) & 3;
      out.scales[g] = static_cast<int8_t>((low4 | high2 << 4) - 32);
    }
    for (int i = 0; i < 256; ++i) {
      const int low = q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3, third = high[i % 32] >> (i / 32) & 1;
      out.codes[i] = static_cast<uint8_t>(low | third << 2);
    }
  }
};

}  // namespace tutti::cpu
