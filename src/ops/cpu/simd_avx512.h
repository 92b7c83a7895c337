// The vector operations of the AVX-512 levels; names and meaning as in simd_portable.h. kVnni: 8-bit dot products in
// one instruction.
#pragma once

#include "ops/cpu/half.h"
#include "ops/cpu/simd_x86.h"

namespace tutti::cpu {

template <bool kVnni>
struct Avx512 : X86Vectors<Avx512<kVnni>> {
  static constexpr int kLanes = 16;
  static constexpr int kFloatTileRows = 12;
  static constexpr int kQuantTileRows = 12;
  static constexpr int64_t kQuantChunk = 512;
  static constexpr bool kSignedDot = !kVnni;
  static constexpr bool kManyRegisters = true;
  static constexpr bool kNarrowSums = false;
  static constexpr bool kPlainTurns = false, kQuantTurns = kVnni;

  static void barrier() {}  // 32 registers

  using X = X86Vectors<Avx512>;
  using F = __m512;
  using I = __m512i;
  using U = __m512i;

  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F zero() { return _mm512_setzero_ps(); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F abs(F a) { return _mm512_abs_ps(a); }
  static F zero_below(F x, float limit, F v) {
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_LT_OQ), _mm512_setzero_ps());
  }
  static float reduce_max(F a) { return _mm512_reduce_max_ps(a); }

  static F load_half(const uint16_t* p) { return _mm512_cvtph_ps(X::load256(p)); }
  static F load_bf16(const uint16_t* p) { return as_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(X::load256(p)), 16)); }
  static void store_bf16(uint16_t* p, F v) {
    const I bits = as_int(v);
    const I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    I rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const I quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(rounded));
  }
  static F load_i8(const int8_t* p) {
    return to_float(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static void store_i8(int8_t* p, I v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
  }
  static F pair_first(const void* p) { return as_float(_mm512_slli_epi32(_mm512_loadu_si512(p), 16)); }
  static F pair_second(const void* p) {
    return as_float(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  }

  static I set1_i(int32_t x) { return _mm512_set1_epi32(x); }
  static I max_i(I a, I b) { return _mm512_max_epi32(a, b); }
  static int32_t reduce_max_i(I a) { return _mm512_reduce_max_epi32(a); }
  static int32_t reduce_add_i(I a) { return _mm512_reduce_add_epi32(a); }
  static I add_i(I a, I b) { return _mm512_add_epi32(a, b); }
  static I sub_i(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I shift_left(I a, int n) { return _mm512_slli_epi32(a, static_cast<unsigned>(n)); }
  static F to_float(I a) { return _mm512_cvtepi32_ps(a); }
  static I as_int(F a) { return _mm512_castps_si512(a); }
  static F as_float(I a) { return _mm512_castsi512_ps(a); }

  static U load_u(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static void store_u(uint8_t* p, U v) { _mm512_storeu_si512(p, v); }
  static U and_u(U a, uint8_t mask) { return _mm512_and_si512(a, _mm512_set1_epi8(static_cast<char>(mask))); }
  static U or_u(U a, U b) { return _mm512_or_si512(a, b); }
  template <int n>
  static U shift_right_u(U a) {
    return _mm512_srli_epi16(a, n);
  }
  template <int n>
  static U shift_left_u(U a) {
    return _mm512_slli_epi16(a, n);
  }
  static U lookup(const uint8_t* table16, U index) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table16))), index);
  }

  template <bool kSigned>
  static I dot(I acc, U codes, const int8_t* x) {
    __m512i activation = _mm512_set1_epi32(X::four_codes(x));
    if constexpr (kVnni) {
      return dpbusd(acc, codes, activation);
    } else {
      if constexpr (kSigned) {  // |w| * (x with the sign of w): products of bytes that fit in 16 bits
        const __m512i w = _mm512_xor_si512(codes, _mm512_set1_epi8(static_cast<char>(128)));
        activation = _mm512_mask_sub_epi8(activation, _mm512_movepi8_mask(w), _mm512_setzero_si512(), activation);
        codes = _mm512_abs_epi8(w);
      }
      const __m512i pairs = _mm512_maddubs_epi16(codes, activation);
      return _mm512_add_epi32(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
    }
  }

 private:
  static I dpbusd(I acc, U codes, I activation) {
#if defined(__AVX512VNNI__)
    return _mm512_dpbusd_epi32(acc, codes, activation);
#else
    static_assert(!kVnni, "this file is compiled without VNNI");
    (void)codes, (void)activation;
    return acc;
#endif
  }
};

}  // namespace tutti::cpu
