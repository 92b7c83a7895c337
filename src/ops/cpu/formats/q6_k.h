// Q6_K: 256 elements, { uint8 low[128]; uint8 high[64]; int8 scales[16]; half d }, value = d * scale * (q - 32), a scale
// for 16 elements. Of each 128 elements, 64 bytes of `low` hold elements 0..63 in their low and 64..127 in their high
// halves; 32 bytes of `high` hold two bits for each 32 elements.
#pragma once

#include "ops/cpu/formats/planes.h"

namespace tutti::cpu {

struct Q6_K : BlockFormat<DType::kQ6_K, 256, Joined<Bits4, Bits2, 4>, SuperScale<16, false>, 5> {
  static void decode(const uint8_t* block, DecodedBlock& out) {
    std::memcpy(out.scales, block + 192, 16);
    std::memcpy(&out.d, block + 208, 2);
    for (int i = 0; i < 256; ++i) {
      const int low = block[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
      const int high = block[128 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
      out.codes[i] = static_cast<uint8_t>(low | high << 4);
    }
  }
};

}  // namespace tutti::cpu
