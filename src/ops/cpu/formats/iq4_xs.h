// IQ4_XS: 256 elements, { half d; uint16 scales_high; uint8 scales_low[4]; uint8 q[128] }. The levels of IQ4_NL with a
// scale of six bits for 32 elements: value = d * (scale - 32) * level[q].
#pragma once

#include "ops/cpu/formats/iq4_nl.h"

namespace tutti::cpu {

struct IQ4_XS : BlockFormat<DType::kIQ4_XS, 256, Looked<Bits4, Iq4Levels>, SuperScale<32, false>, 7> {
  static void decode(const uint8_t* block, DecodedBlock& out) {
    std::memcpy(&out.d, block, 2);
    uint16_t high;
    std::memcpy(&high, block + 2, 2);
    for (int g = 0; g < 8; ++g) {
      const int low4 = block[4 + g / 2] >> (g % 2 * 4) & 15, high2 = high >> (2 * g) & 3;
      out.scales[g] = static_cast<int8_t>((low4 | high2 << 4) - 32);
    }
    for (int i = 0; i < 256; ++i) out.codes[i] = block[8 + i / 32 * 16 + i % 16] >> (i % 32 / 16 * 4) & 15;
  }
};

}  // namespace tutti::cpu
