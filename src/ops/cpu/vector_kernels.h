// Elementwise and row kernels for any vector type V: norms, activation, rotation, exp. Sums are kept in 32 lanes at
// every level (several narrow vectors or two wide ones) and then added as a tree, so their order is the same.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/cpu/half.h"
#include "ops/cpu/level.h"

namespace tutti::cpu {

inline constexpr int kSumLanes = 32;

// e^x with a relative error under 2e-7; 0 below the smallest normal number. x <= 88.
template <class V>
inline typename V::F vector_exp(typename V::F x) {
  using F = typename V::F;
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  const F clamped = V::max(V::set1(-88.0f), V::min(x, V::set1(88.0f)));
  const F shifted = V::fma(clamped, V::set1(1.44269504f), V::set1(kMagic));  // low bits hold round(x / ln 2)
  const F n = V::sub(shifted, V::set1(kMagic));
  F r = V::fma(n, V::set1(-0.693359375f), clamped);
  r = V::fma(n, V::set1(2.12194440e-4f), r);
  F p = V::set1(1.0f / 5040);
  p = V::fma(p, r, V::set1(1.0f / 720));
  p = V::fma(p, r, V::set1(1.0f / 120));
  p = V::fma(p, r, V::set1(1.0f / 24));
  p = V::fma(p, r, V::set1(1.0f / 6));
  p = V::fma(p, r, V::set1(0.5f));
  p = V::fma(p, r, V::set1(1.0f));
  p = V::fma(p, r, V::set1(1.0f));
  const F power = V::as_float(V::add_i(V::shift_left(V::as_int(shifted), 23), V::set1_i(0x3f800000)));
  return V::zero_below(x, -87.3f, V::mul(p, power));
}

// The sum of kSumLanes floats as a balanced tree.
template <class V>
inline float tree_sum(const float* lanes) {
  float s[kSumLanes];
  for (int i = 0; i < kSumLanes; ++i) s[i] = lanes[i];
  for (int width = kSumLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) s[i] += s[i + width];
  }
  return s[0];
}

template <class V>
void add_rows(float* x, const float* y, int64_t n) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::store(x + i, V::add(V::load(x + i), V::load(y + i)));
  for (; i < n; ++i) x[i] += y[i];
}

template <class V>
void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  const auto vector = [](const float* g, const float* u, float* o) {
    const auto x = V::load(g);
    const auto e = vector_exp<V>(V::sub(V::zero(), x));
    V::store(o, V::mul(V::div(x, V::add(V::set1(1.0f), e)), V::load(u)));
  };
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) vector(gate + i, up + i, out + i);
  if (i == n) return;
  float g[V::kLanes] = {}, u[V::kLanes] = {}, o[V::kLanes];
  for (int j = 0; j < n - i; ++j) g[j] = gate[i + j], u[j] = up[i + j];
  vector(g, u, o);
  for (int j = 0; j < n - i; ++j) out[i + j] = o[j];
}

template <class V>
void rms_norm_row(const float* x, const float* weight, int64_t n, float eps, float* out) {
  constexpr int kVectors = kSumLanes / V::kLanes;
  typename V::F sum[kVectors];
  for (auto& s : sum) s = V::zero();
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int v = 0; v < kVectors; ++v) {
      const auto a = V::load(x + i + v * V::kLanes);
      sum[v] = V::fma(a, a, sum[v]);
    }
  }
  float lanes[kSumLanes];
  for (int v = 0; v < kVectors; ++v) V::store(lanes + v * V::kLanes, sum[v]);
  for (int j = 0; i + j < n; ++j) lanes[j] += x[i + j] * x[i + j];
  const float factor = 1.0f / __builtin_sqrtf(tree_sum<V>(lanes) / static_cast<float>(n) + eps);
  for (i = 0; i + V::kLanes <= n; i += V::kLanes) {
    V::store(out + i, V::mul(V::mul(V::load(x + i), V::set1(factor)), V::load(weight + i)));
  }
  for (; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

template <class V>
void rope_half(float* x, const float* cos, const float* sin, int64_t half) {
  int64_t i = 0;
  for (; i + V::kLanes <= half; i += V::kLanes) {
    const auto a = V::load(x + i), b = V::load(x + half + i), c = V::load(cos + i), s = V::load(sin + i);
    V::store(x + i, V::sub(V::mul(a, c), V::mul(b, s)));
    V::store(x + half + i, V::add(V::mul(b, c), V::mul(a, s)));
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * cos[i] - b * sin[i];
    x[half + i] = b * cos[i] + a * sin[i];
  }
}

template <class V>
void rope_interleaved(float* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cos[i] - b * sin[i];
    x[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

template <class V>
void to_bf16(const float* x, int64_t n, uint16_t* out) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::store_bf16(out + i, V::load(x + i));
  for (; i < n; ++i) out[i] = float_to_bf16<V>(x[i]);
}

}  // namespace tutti::cpu
