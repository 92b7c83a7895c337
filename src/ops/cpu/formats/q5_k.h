// Q5_K: 256 elements, { half d, dmin; uint8 scales[12]; uint8 high[32]; uint8 q[128] }. As Q4_K; bit i / 32 of
// high[i % 32] is the fifth bit of element i.
#pragma once

#include "ops/cpu/formats/planes.h"

namespace tutti::cpu {

struct Q5_K : BlockFormat<DType::kQ5_K, 256, Joined<Bits4, Bits1, 4>, SuperScale<32, true>, -1> {
  static void decode(const uint8_t* block, DecodedBlock& out) {
    std::memcpy(&out.d, block, 2);
    std::memcpy(&out.m, block + 2, 2);
    decode_six_bit_scales(block + 4, out);
    for (int i = 0; i < 256; ++i) {
      const int low = block[48 + i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15, fifth = block[16 + i % 32] >> (i / 32) & 1;
      out.codes[i] = static_cast<uint8_t>(low | fifth << 4);
    }
  }
};

}  // namespace tutti::cpu
