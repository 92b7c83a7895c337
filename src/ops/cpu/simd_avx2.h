// The vector operations of the `avx2` level (AVX2, FMA, F16C); names and meaning as in simd_portable.h.
#pragma once

#include "ops/cpu/half.h"
#include "ops/cpu/simd_x86.h"

namespace tutti::cpu {

struct Avx2 : X86Vectors<Avx2> {
  static constexpr int kLanes = 8;
  static constexpr int kFloatTileRows = 6;
  static constexpr int kQuantTileRows = 8;
  static constexpr int64_t kQuantChunk = 256;
  static constexpr bool kSignedDot = true;
  static constexpr bool kManyRegisters = false;
  static constexpr bool kNarrowSums = true;
  static constexpr bool kPlainTurns = true, kQuantTurns = true;
  static constexpr int kPrefetchBytes = 0, kTurnsPrefetchBytes = 0;  // on Zen 3, asking for each line is slower than what the processor fetches ahead

  using F = __m256;
  using I = __m256i;
  using U = __m256i;

  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static F zero() { return _mm256_setzero_ps(); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  static F zero_below(F x, float limit, F v) {
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_LT_OQ), v);
  }
  static float reduce_max(F a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }

  static F load_half(const uint16_t* p) { return _mm256_cvtph_ps(load128(p)); }
  static F load_bf16(const uint16_t* p) { return as_float(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16)); }
  static void store_bf16(uint16_t* p, F v) {
    const I bits = as_int(v);
    const I odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    I rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const I quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    rounded = _mm256_blendv_epi8(rounded, quiet, as_int(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
  }
  static F load_i8(const int8_t* p) {
    return to_float(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static void store_i8(int8_t* p, I v) {
    const I bytes = _mm256_shuffle_epi8(v, _mm256_set1_epi32(0x0c080400));  // every 128-bit lane: its four low bytes
    const int32_t low = _mm256_extract_epi32(bytes, 0), high = _mm256_extract_epi32(bytes, 4);
    std::memcpy(p, &low, 4);
    std::memcpy(p + 4, &high, 4);
  }
  static F pair_first(const void* p) { return as_float(_mm256_slli_epi32(load256(p), 16)); }
  static F pair_second(const void* p) {
    // Two shifts and no mask, which would take a register from the accumulators.
    return as_float(_mm256_slli_epi32(in_order(_mm256_srli_epi32(load256(p), 16)), 16));
  }

  static I set1_i(int32_t x) { return _mm256_set1_epi32(x); }
  static I max_i(I a, I b) { return _mm256_max_epi32(a, b); }
  static int32_t reduce_max_i(I a) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
  }
  static int32_t reduce_add_i(I a) {
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
  }
  static I add_i(I a, I b) { return _mm256_add_epi32(a, b); }
  static I sub_i(I a, I b) { return _mm256_sub_epi32(a, b); }
  static I shift_left(I a, int n) { return _mm256_slli_epi32(a, n); }
  static F to_float(I a) { return _mm256_cvtepi32_ps(a); }
  static I as_int(F a) { return _mm256_castps_si256(a); }
  static F as_float(I a) { return _mm256_castsi256_ps(a); }

  static U load_u(const uint8_t* p) { return load256(p); }
  static void store_u(uint8_t* p, U v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  static U and_u(U a, uint8_t mask) { return _mm256_and_si256(a, _mm256_set1_epi8(static_cast<char>(mask))); }
  static U or_u(U a, U b) { return _mm256_or_si256(a, b); }
  template <int n>
  static U shift_right_u(U a) {
    return _mm256_srli_epi16(a, n);
  }
  template <int n>
  static U shift_left_u(U a) {
    return _mm256_slli_epi16(a, n);
  }
  static U lookup(const uint8_t* table16, U index) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load128(table16)), index);
  }

  template <bool kSigned>
  static I dot(I acc, U codes, const int8_t* x) {
    __m256i activation = _mm256_set1_epi32(four_codes(x));
    if constexpr (kSigned) {  // |w| * (x with the sign of w): products of bytes that fit in 16 bits
      const __m256i w = _mm256_xor_si256(codes, _mm256_set1_epi8(static_cast<char>(128)));
      activation = _mm256_sign_epi8(activation, w);
      codes = _mm256_abs_epi8(w);
    }
    return in_order(_mm256_add_epi32(acc, widen(_mm256_maddubs_epi16(codes, activation))));
  }
  // The same with two sums of 16 bits in each lane of `acc`, which must not overflow; the sum of the two.
  static I dot_narrow(I acc, U codes, const int8_t* x) {
    return in_order(_mm256_add_epi16(acc, _mm256_maddubs_epi16(codes, _mm256_set1_epi32(four_codes(x)))));
  }
  static I widen(I acc) { return _mm256_madd_epi16(acc, _mm256_set1_epi16(1)); }

 private:
  // Keeps sums in the order they are written in: compilers else make trees of them, for which there are no registers.
  static I in_order(I sum) {
    asm("" : "+x"(sum));
    return sum;
  }
};

}  // namespace tutti::cpu
