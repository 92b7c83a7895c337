// Q5_0: 32 elements, { half d; uint32 high; uint8 q[16] }: nibbles as in Q4_0, bit i of `high` is the fifth bit of element
// i, value = d * (q - 16).
#pragma once

#include "ops/cpu/formats/planes.h"

namespace tutti::cpu {

struct Q5_0 : BlockFormat<DType::kQ5_0, 32, Joined<Bits4, Bits1, 4>, HalfScale<false>, 4> {
  static void decode(const uint8_t* block, DecodedBlock& out) {
    std::memcpy(&out.d, block, 2);
    decode_five_bits(block + 2, out.codes);
  }
};

}  // namespace tutti::cpu
