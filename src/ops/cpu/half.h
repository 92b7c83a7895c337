// Scalar conversions between float and the 16-bit types. Templates on a tag, so that every instruction set level has
// its own copy: a function compiled for AVX-512 must never be the one that the linker keeps for everybody. (The same
// goes for std::bit_cast, hence the builtin.)
#pragma once

#include <cstdint>

namespace tutti::cpu {

struct Baseline {};

template <class Tag = Baseline>
inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t magnitude = h & 0x7fff;
  if (magnitude >= 0x7c00) return __builtin_bit_cast(float, sign | 0x7f800000 | (magnitude << 13));  // infinity, NaN
  // The exponent is rebased by a multiplication, which also turns subnormals into normal numbers.
  const float value = __builtin_bit_cast(float, magnitude << 13) * 0x1p112f;
  return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, value));
}

template <class Tag = Baseline>
inline float bf16_to_float(uint16_t b) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(b) << 16);
}

// Rounds to the nearest, ties to even; NaN stays NaN.
template <class Tag = Baseline>
inline uint16_t float_to_bf16(float f) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, f);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace tutti::cpu
