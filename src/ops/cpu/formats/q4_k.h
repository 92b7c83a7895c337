// Q4_K: 256 elements, { half d, dmin; uint8 scales[12]; uint8 q[128] }. 32 elements share a scale and a minimum of six
// bits: value = d * scale * q - dmin * min. 32 bytes of q hold 64 elements, the low halves first.
#pragma once

#include "ops/cpu/formats/planes.h"

namespace tutti::cpu {

struct Q4_K : BlockFormat<DType::kQ4_K, 256, Bits4, SuperScale<32, true>, -1> {
  static void decode(const uint8_t* block, DecodedBlock& out) {
    std::memcpy(&out.d, block, 2);
    std::memcpy(&out.m, block + 2, 2);
    decode_six_bit_scales(block + 4, out);
    for (int i = 0; i < 256; ++i) out.codes[i] = block[16 + i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
  }
};

}  // namespace tutti::cpu
