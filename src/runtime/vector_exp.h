// exp() over whole rows of logits, in a form that compilers turn into vector code. Any thread.
#pragma once

#include <bit>
#include <cstdint>

namespace tutti {

// exp(x) for x <= 0, relative error under 2e-7; 0 below -87. x = n ln 2 + r, exp(r) by a polynomial.
inline float exp_of_negative(float x) {
  const uint32_t counts = 0u - static_cast<uint32_t>(x >= -87.0f);  // a mask: a branch would keep the loop scalar
  const float clamped = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & counts);
  const float shifted = clamped * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer in the low bits
  const float n = shifted - 12582912.0f;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) << 23;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(p) + exponent) & counts);
}

}  // namespace tutti
