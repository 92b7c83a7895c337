// The vector operations of the `portable` level: the compiler's own 128-bit vectors, which every 64-bit target has
// (SSE2, NEON). simd_avx2.h and simd_avx512.h offer the same names; kernels are templates over such a struct.
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/cpu/half.h"

namespace tutti::cpu {

struct Portable {
  static constexpr int kLanes = 4;
  static constexpr int kFloatTileRows = 4;  // activation rows that a register tile holds, plain weights
  static constexpr int kQuantTileRows = 2;  // the same, quantised weights
  static constexpr int64_t kQuantChunk = 256;  // elements of k (layout.h)
  static constexpr bool kSignedDot = true;  // dot() takes codes of 8 bits as signed (code - 128)
  static constexpr bool kManyRegisters = false;  // 32, so that sums of two vectors and six rows stay in them
  static constexpr bool kNarrowSums = false;  // are there dot_narrow() and widen(), for sums that fit 16 bits?
  static constexpr bool kPlainTurns = false, kQuantTurns = false;  // do few rows take several panels in turn?

  using F = float __attribute__((vector_size(16)));
  using I = int32_t __attribute__((vector_size(16)));
  using U = uint8_t __attribute__((vector_size(16)));  // four codes a lane
  using Words = uint32_t __attribute__((vector_size(16)));

  template <class T, class P>
  static T load_as(const P* p) {
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }

  static F load(const float* p) { return load_as<F>(p); }
  static void store(float* p, F v) { std::memcpy(p, &v, sizeof v); }
  static F set1(float x) { return F{x, x, x, x}; }
  static F zero() { return F{}; }
  static F fma(F a, F b, F c) { return a * b + c; }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F max(F a, F b) { return a > b ? a : b; }
  static F min(F a, F b) { return a < b ? a : b; }
  static F abs(F a) { return as_float(as_int(a) & 0x7fffffff); }
  static F zero_below(F x, float limit, F v) { return x < set1(limit) ? zero() : v; }
  static float reduce_max(F a) {
    const float x = a[0] > a[1] ? a[0] : a[1], y = a[2] > a[3] ? a[2] : a[3];
    return x > y ? x : y;
  }

  static F load_half(const uint16_t* p) {
    return F{half_to_float<Portable>(p[0]), half_to_float<Portable>(p[1]), half_to_float<Portable>(p[2]),
             half_to_float<Portable>(p[3])};
  }
  static F load_bf16(const uint16_t* p) {
    return F{bf16_to_float<Portable>(p[0]), bf16_to_float<Portable>(p[1]), bf16_to_float<Portable>(p[2]),
             bf16_to_float<Portable>(p[3])};
  }
  static void store_bf16(uint16_t* p, F v) {
    for (int i = 0; i < kLanes; ++i) p[i] = float_to_bf16<Portable>(v[i]);
  }
  static F load_i8(const int8_t* p) {
    return F{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]), static_cast<float>(p[3])};
  }
  // The low byte of each lane.
  static void store_i8(int8_t* p, I v) {
    for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(v[i]);
  }
  // Lanes of two bfloat16: the first, the second of each.
  static F pair_first(const void* p) { return reinterpret_cast<F>(load_as<Words>(static_cast<const char*>(p)) << 16); }
  static F pair_second(const void* p) {
    return reinterpret_cast<F>(load_as<Words>(static_cast<const char*>(p)) & 0xffff0000u);
  }

  static I set1_i(int32_t x) { return I{x, x, x, x}; }
  static I max_i(I a, I b) { return a > b ? a : b; }
  static int32_t reduce_max_i(I a) {
    const int32_t x = a[0] > a[1] ? a[0] : a[1], y = a[2] > a[3] ? a[2] : a[3];
    return x > y ? x : y;
  }
  static int32_t reduce_add_i(I a) {  // wraps, as the vectors do
    return static_cast<int32_t>(static_cast<uint32_t>(a[0]) + static_cast<uint32_t>(a[1]) + static_cast<uint32_t>(a[2]) +
                                static_cast<uint32_t>(a[3]));
  }
  static I add_i(I a, I b) { return a + b; }
  static I sub_i(I a, I b) { return a - b; }
  static I shift_left(I a, int n) { return a << n; }
  static F to_float(I a) { return __builtin_convertvector(a, F); }
  static I as_int(F a) { return reinterpret_cast<I>(a); }
  static F as_float(I a) { return reinterpret_cast<F>(a); }

  // Values read before are read again, not kept in registers that accumulators need.
  static void barrier() { asm volatile("" ::: "memory"); }
  // The same pointer, but what was read through `p` is not taken for what is read through it.
  static const uint8_t* another(const uint8_t* p) {
    asm("" : "+r"(p));
    return p;
  }
  template <int kBytes>
  static void prefetch(const void*) {}
  static constexpr int kPrefetchBytes = 0, kTurnsPrefetchBytes = 0;

  static void store_u(uint8_t* p, U v) { std::memcpy(p, &v, sizeof v); }
  static U load_u(const uint8_t* p) { return load_as<U>(p); }
  static U and_u(U a, uint8_t mask) { return a & mask; }
  static U or_u(U a, U b) { return a | b; }
  // Bits move inside 16-bit groups; the caller masks what crossed a byte.
  template <int n>
  static U shift_right_u(U a) {
    using H = uint16_t __attribute__((vector_size(16)));
    return reinterpret_cast<U>(reinterpret_cast<H>(a) >> n);
  }
  template <int n>
  static U shift_left_u(U a) {
    using H = uint16_t __attribute__((vector_size(16)));
    return reinterpret_cast<U>(reinterpret_cast<H>(a) << n);
  }
  static U lookup(const uint8_t* table16, U index) {
    U out;
    for (int i = 0; i < 16; ++i) out[i] = table16[index[i]];
    return out;
  }

  // acc[lane] += sum of codes[4 lane + i] * x[i], i = 0..3. `kSigned`: codes are 8-bit values plus 128.
  template <bool kSigned>
  static I dot(I acc, U codes, const int8_t* x) {
    if constexpr (kSigned) codes = codes ^ uint8_t{128};
    const Words words = reinterpret_cast<Words>(codes);
    for (int i = 0; i < 4; ++i) {
      I w = reinterpret_cast<I>(words >> (8 * i)) & 255;
      if constexpr (kSigned) w = (w ^ 128) - 128;
      acc += w * x[i];
    }
    return acc;
  }
};

}  // namespace tutti::cpu
