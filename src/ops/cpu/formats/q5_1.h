// Q5_1: 32 elements, { half d, m; uint32 high; uint8 q[16] }: codes as in Q5_0, value = d * q + m.
#pragma once

#include "ops/cpu/formats/planes.h"

namespace tutti::cpu {

struct Q5_1 : BlockFormat<DType::kQ5_1, 32, Joined<Bits4, Bits1, 4>, HalfScale<true>, -1> {
  static void decode(const uint8_t* block, DecodedBlock& out) {
    std::memcpy(&out.d, block, 2);
    std::memcpy(&out.m, block + 2, 2);
    decode_five_bits(block + 4, out.codes);
  }
};

}  // namespace tutti::cpu
