// IQ4_NL: 32 elements, { half d; uint8 q[16] }, nibbles as in Q4_0 that index a table of 16 levels: value = d * level[q].
#pragma once

#include "ops/cpu/formats/planes.h"

namespace tutti::cpu {

// The levels plus 128, which is how 8-bit codes are kept.
struct Iq4Levels {
  static constexpr uint8_t kTable[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
};

struct IQ4_NL : BlockFormat<DType::kIQ4_NL, 32, Looked<Bits4, Iq4Levels>, HalfScale<false>, 7> {
  static void decode(const uint8_t* block, DecodedBlock& out) {
    std::memcpy(&out.d, block, 2);
    for (int i = 0; i < 32; ++i) out.codes[i] = block[2 + i % 16] >> (i / 16 * 4) & 15;
  }
};

}  // namespace tutti::cpu
