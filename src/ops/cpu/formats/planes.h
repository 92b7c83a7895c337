// How codes and scales of a quantised weight lie in a packed unit. Formats are composed of these parts: a plane of 8-,
// 4-, 2- or 1-bit codes of 32 k x 32 rows, and one of two kinds of scales. put() (four codes into a zeroed plane) and
// get() serve packing and the embedding, load<V>() serves the matrix kernels.
//
// A "quad" is four consecutive k of one row, the 32-bit lane of a vector; a block of 32 k has 8 quads. `half` is the
// group of 16 rows, `byte` the offset of a vector inside a quad's 64 bytes (16 rows x 4).
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/cpu/half.h"
#include "ops/cpu/layout.h"
#include "tensor/dtype.h"

namespace tutti::cpu {

inline constexpr int kQuadBytes = kHalfRows * 4;

// Where element k (0..31) of a row (0..31) is.
struct CodePosition {
  int half, quad, byte;
  CodePosition(int row, int k) : half(row / kHalfRows), quad(k / 4), byte(row % kHalfRows * 4 + k % 4) {}
};

// Adds four codes, one a byte, to the quad at `p`.
inline void add_quad(uint8_t* p, uint32_t codes) {
  uint32_t quad;
  std::memcpy(&quad, p, 4);
  quad |= codes;
  std::memcpy(p, &quad, 4);
}

struct Bits8 {
  static constexpr int kBytes = kBlock * kPanelRows;
  static constexpr uint32_t kMask = 0xffffffff;
  static constexpr int kLargest = 255;
  static int at(const CodePosition& p) { return (p.half * kQuads + p.quad) * kQuadBytes + p.byte; }
  static void put(uint8_t* plane, int row, int quad, uint32_t codes) {
    add_quad(plane + at(CodePosition(row, quad * 4)), codes);
  }
  static uint32_t get(const uint8_t* plane, int row, int k) { return plane[at(CodePosition(row, k))]; }
  template <class V, int kQuad>
  static typename V::U load(const uint8_t* plane, int half, int byte) {
    return V::load_u(plane + half * (kQuads * kQuadBytes) + byte + kQuad * kQuadBytes);
  }
};

// A byte holds quad q in its low and quad q + 4 in its high half.
struct Bits4 {
  static constexpr int kBytes = Bits8::kBytes / 2;
  static constexpr uint32_t kMask = 0x0f0f0f0f;
  static constexpr int kLargest = 15;
  static int at(const CodePosition& p) { return (p.half * 4 + p.quad % 4) * kQuadBytes + p.byte; }
  static void put(uint8_t* plane, int row, int quad, uint32_t codes) {
    add_quad(plane + at(CodePosition(row, quad * 4)), codes << (quad / 4 * 4));
  }
  static uint32_t get(const uint8_t* plane, int row, int k) {
    const CodePosition p(row, k);
    return plane[at(p)] >> (p.quad / 4 * 4) & 15;
  }
  template <class V, int kQuad>
  static typename V::U load(const uint8_t* plane, int half, int byte) {
    const auto both = V::load_u(plane + half * (4 * kQuadBytes) + byte + kQuad % 4 * kQuadBytes);
    if constexpr (kQuad < 4) {
      return V::and_u(both, 15);
    } else {
      return V::and_u(V::template shift_right_u<4>(both), 15);
    }
  }
};

// A byte holds four quads, two bits each.
struct Bits2 {
  static constexpr int kBytes = Bits8::kBytes / 4;
  static constexpr uint32_t kMask = 0x03030303;
  static constexpr int kLargest = 3;
  static int at(const CodePosition& p) { return (p.half * 2 + p.quad / 4) * kQuadBytes + p.byte; }
  static void put(uint8_t* plane, int row, int quad, uint32_t codes) {
    add_quad(plane + at(CodePosition(row, quad * 4)), codes << (quad % 4 * 2));
  }
  static uint32_t get(const uint8_t* plane, int row, int k) {
    const CodePosition p(row, k);
    return plane[at(p)] >> (p.quad % 4 * 2) & 3;
  }
  template <class V, int kQuad>
  static typename V::U load(const uint8_t* plane, int half, int byte) {
    const auto four = V::load_u(plane + half * (2 * kQuadBytes) + byte + kQuad / 4 * kQuadBytes);
    return V::and_u(V::template shift_right_u<kQuad % 4 * 2>(four), 3);
  }
};

// A byte holds eight quads, one bit each.
struct Bits1 {
  static constexpr int kBytes = Bits8::kBytes / 8;
  static constexpr uint32_t kMask = 0x01010101;
  static constexpr int kLargest = 1;
  static int at(const CodePosition& p) { return p.half * kQuadBytes + p.byte; }
  static void put(uint8_t* plane, int row, int quad, uint32_t codes) {
    add_quad(plane + at(CodePosition(row, quad * 4)), codes << quad);
  }
  static uint32_t get(const uint8_t* plane, int row, int k) {
    const CodePosition p(row, k);
    return plane[at(p)] >> p.quad & 1;
  }
  template <class V, int kQuad>
  static typename V::U load(const uint8_t* plane, int half, int byte) {
    return V::and_u(V::template shift_right_u<kQuad>(V::load_u(plane + half * kQuadBytes + byte)), 1);
  }
};

// The low bits of a code in one plane, the bits from kShift on in another.
template <class Low, class High, int kShift>
struct Joined {
  static constexpr int kBytes = Low::kBytes + High::kBytes;
  static constexpr int kLargest = Low::kLargest | High::kLargest << kShift;
  static void put(uint8_t* plane, int row, int quad, uint32_t codes) {
    Low::put(plane, row, quad, codes & Low::kMask);
    High::put(plane + Low::kBytes, row, quad, codes >> kShift & High::kMask);
  }
  static uint32_t get(const uint8_t* plane, int row, int k) {
    return Low::get(plane, row, k) | High::get(plane + Low::kBytes, row, k) << kShift;
  }
  template <class V, int kQuad>
  static typename V::U load(const uint8_t* plane, int half, int byte) {
    const auto high = High::template load<V, kQuad>(plane + Low::kBytes, half, byte);
    return V::or_u(Low::template load<V, kQuad>(plane, half, byte), V::template shift_left_u<kShift>(high));
  }
};

// Codes that index a table of 16 bytes.
template <class Plane, class Levels>
struct Looked {
  static constexpr int kBytes = Plane::kBytes;
  static constexpr int kLargest = 255;
  static void put(uint8_t* plane, int row, int quad, uint32_t codes) { Plane::put(plane, row, quad, codes); }
  static uint32_t get(const uint8_t* plane, int row, int k) { return Levels::kTable[Plane::get(plane, row, k)]; }
  template <class V, int kQuad>
  static typename V::U load(const uint8_t* plane, int half, int byte) {
    return V::lookup(Levels::kTable, Plane::template load<V, kQuad>(plane, half, byte));
  }
};

// One GGUF block of one row, taken apart: what a format's decode() fills in.
struct DecodedBlock {
  uint8_t codes[256];
  uint16_t d = 0;      // half: the block's scale
  uint16_t m = 0;      // half: the block's minimum, or the scale of the minima
  int8_t scales[16];   // of each group, where a format has them
  int8_t mins[16];
};

// { uint32 high; uint8 q[16] } of Q5_0 and Q5_1.
inline void decode_five_bits(const uint8_t* p, uint8_t* codes) {
  uint32_t high;
  std::memcpy(&high, p, 4);
  for (int i = 0; i < 32; ++i) {
    codes[i] = static_cast<uint8_t>((p[4 + i % 16] >> (i / 16 * 4) & 15) | (high >> i & 1) << 4);
  }
}

// The 12 bytes of Q4_K and Q5_K: eight scales and eight minima of six bits.
inline void decode_six_bit_scales(const uint8_t* p, DecodedBlock& out) {
  for (int g = 0; g < 4; ++g) {
    out.scales[g] = static_cast<int8_t>(p[g] & 63);
    out.mins[g] = static_cast<int8_t>(p[g + 4] & 63);
    out.scales[g + 4] = static_cast<int8_t>((p[g + 8] & 15) | p[g] >> 6 << 4);
    out.mins[g + 4] = static_cast<int8_t>(p[g + 8] >> 4 | p[g + 4] >> 6 << 4);
  }
}

// One half-precision scale for each row and unit, and a minimum if kHasMin: value = d * code (+ m).
template <bool kMin>
struct HalfScale {
  static constexpr bool kHasMin = kMin;
  static constexpr int kGroup = kBlock;
  static constexpr int kBytes = (kMin ? 2 : 1) * 2 * kPanelRows;
  static void put(uint8_t* unit, int row, const DecodedBlock& block) {
    std::memcpy(unit + row * 2, &block.d, 2);
    if constexpr (kMin) std::memcpy(unit + (kPanelRows + row) * 2, &block.m, 2);
  }
  static float scale(const uint8_t* unit, int row, int) { return half_at(unit, row); }
  static float min(const uint8_t* unit, int row, int) { return half_at(unit, kPanelRows + row); }
  template <class V>
  static typename V::F load_scale(const uint8_t* unit, int first_row, int) {
    return V::load_half(reinterpret_cast<const uint16_t*>(unit) + first_row);
  }
  template <class V>
  static typename V::F load_min(const uint8_t* unit, int first_row, int) {
    return V::load_half(reinterpret_cast<const uint16_t*>(unit) + kPanelRows + first_row);
  }

 private:
  static float half_at(const uint8_t* unit, int index) {
    uint16_t bits;
    std::memcpy(&bits, unit + index * 2, 2);
    return half_to_float(bits);
  }
};

// A half-precision scale of 256 elements times an 8-bit scale of each group: value = d * scale * code (- m * min).
// Both products of a half and a small integer are exact in float.
template <int kGroupSize, bool kMin>
struct SuperScale {
  static constexpr bool kHasMin = kMin;
  static constexpr int kGroup = kGroupSize;
  static constexpr int kGroups = 256 / kGroupSize;
  using Super = HalfScale<kMin>;
  static constexpr int kBytes = Super::kBytes + (kMin ? 2 : 1) * kGroups * kPanelRows;
  static void put(uint8_t* unit, int row, const DecodedBlock& block) {
    Super::put(unit, row, block);
    for (int g = 0; g < kGroups; ++g) {
      unit[scale_at(row, g)] = static_cast<uint8_t>(block.scales[g]);
      if constexpr (kMin) unit[min_at(row, g)] = static_cast<uint8_t>(block.mins[g]);
    }
  }
  static float scale(const uint8_t* unit, int row, int group) {
    return Super::scale(unit, row, 0) * static_cast<float>(static_cast<int8_t>(unit[scale_at(row, group)]));
  }
  static float min(const uint8_t* unit, int row, int group) {
    return -Super::min(unit, row, 0) * static_cast<float>(static_cast<int8_t>(unit[min_at(row, group)]));
  }
  template <class V>
  static typename V::F load_scale(const uint8_t* unit, int first_row, int group) {
    return V::mul(Super::template load_scale<V>(unit, first_row, 0),
                  V::load_i8(reinterpret_cast<const int8_t*>(unit) + scale_at(first_row, group)));
  }
  template <class V>
  static typename V::F load_min(const uint8_t* unit, int first_row, int group) {
    return V::mul(V::sub(V::zero(), Super::template load_min<V>(unit, first_row, 0)),
                  V::load_i8(reinterpret_cast<const int8_t*>(unit) + min_at(first_row, group)));
  }

 private:
  static constexpr int scale_at(int row, int group) { return Super::kBytes + group * kPanelRows + row; }
  static constexpr int min_at(int row, int group) { return scale_at(row, kGroups + group); }
};

// What every format has: GGUF blocks of `kElements`, packed into units of kUnitBytes: the scales, then the codes of each
// 32 elements. A code stands
// for code - 2^kBits (kBits < 0: for itself).
template <DType kDType, int kElements, class CodesT, class ScalesT, int kBits>
struct BlockFormat {
  using Codes = CodesT;
  using Scales = ScalesT;
  static constexpr DType kType = kDType;
  static constexpr int kUnit = kElements;
  static constexpr int kBlocks = kElements / kBlock;
  static constexpr int kUnitBytes = Scales::kBytes + kBlocks * Codes::kBytes;
  static constexpr int kGroup = Scales::kGroup;
  static constexpr bool kHasMin = Scales::kHasMin;
  static constexpr int kOffsetBits = kBits;
  static constexpr bool kOffset = kBits >= 0;
  static constexpr bool kPacked = true;  // read from memory as it streams by
  static constexpr bool kByteCodes = Codes::kBytes == Bits8::kBytes;
  // How many quads' products with activations, added by twos, fit signed 16 bits together.
  static constexpr int kNarrowQuads = 32767 / (2 * 127 * Codes::kLargest);
  // Does the level's dot() want 8-bit codes as signed numbers?
  template <class V>
  static constexpr bool kSigned = V::kSignedDot && kBits == 7;

  template <class V, int kQuad>
  static typename V::U load_codes(const uint8_t* unit, int block, int half, int byte) {
    return Codes::template load<V, kQuad>(unit + Scales::kBytes + block * Codes::kBytes, half, byte);
  }
  static int code_value(uint32_t code) {
    return static_cast<int>(code) - (kOffset ? 1 << (kOffset ? kBits : 0) : 0);
  }
};

}  // namespace tutti::cpu
