// The blocks of GGUF's quantised types, byte for byte as they lie in a file. Scales are
// half-precision bit patterns (half.h). A block stands for kSmallBlock or kSuperBlock consecutive
// elements of a row; nibble i of a group of n bytes is element i in the low half and element i + n
// in the high half.
#pragma once

#include <cstdint>

namespace tutti {

constexpr int kSmallBlock = 32;
constexpr int kSuperBlock = 256;

struct BlockQ8_0 {  // x = d * q
  uint16_t d;
  int8_t qs[32];
};
struct BlockQ4_0 {  // x = d * (q - 8)
  uint16_t d;
  uint8_t qs[16];
};
struct BlockQ4_1 {  // x = d * q + m
  uint16_t d, m;
  uint8_t qs[16];
};
struct BlockQ5_0 {  // x = d * (q - 16); bit i of qh is the fifth bit of element i
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ5_1 {  // x = d * q + m
  uint16_t d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ2_K {  // 16 groups of 16: x = d * (scale & 15) * q - dmin * (scale >> 4)
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d, dmin;
};
struct BlockQ3_K {  // 16 groups of 16: x = d * (scale - 32) * (q - 4), scales of 6 bits
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};
struct BlockQ4_K {  // 8 groups of 32: x = d * scale * q - dmin * min, scales and mins of 6 bits
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
struct BlockQ5_K {  // as Q4_K with a fifth bit: bit g of qh[j] belongs to element j of group g
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
struct BlockQ6_K {  // 16 groups of 16: x = d * scale * (q - 32)
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};
struct BlockIQ4_NL {  // x = d * kIq4Levels[q]
  uint16_t d;
  uint8_t qs[16];
};
struct BlockIQ4_XS {  // 8 groups of 32: x = d * (scale - 32) * kIq4Levels[q], scales of 6 bits
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};

static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockIQ4_NL) == 18 && sizeof(BlockIQ4_XS) == 136);

inline constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

struct ScaleMin {
  int scale, min;
};

// Group `g` (0..7) of the 12 bytes that Q4_K and Q5_K share.
inline ScaleMin q4_k_scale_min(const uint8_t* scales, int g) {
  if (g < 4) return {scales[g] & 63, scales[g + 4] & 63};
  return {(scales[g + 4] & 15) | ((scales[g - 4] >> 6) << 4),
          (scales[g + 4] >> 4) | ((scales[g] >> 6) << 4)};
}

// Group `g` (0..15) of Q3_K's 12 bytes, -32..31.
inline int q3_k_scale(const uint8_t* scales, int g) {
  const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
  const int high = (scales[8 + g % 4] >> (2 * (g / 4))) & 3;
  return (low | (high << 4)) - 32;
}

// Group `g` (0..7) of IQ4_XS, -32..31.
inline int iq4_xs_scale(const BlockIQ4_XS& block, int g) {
  const int low = (block.scales_l[g / 2] >> (4 * (g % 2))) & 15;
  const int high = (block.scales_h >> (2 * g)) & 3;
  return (low | (high << 4)) - 32;
}

}  // namespace tutti
