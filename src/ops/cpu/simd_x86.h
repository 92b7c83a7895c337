// What the vector types of x86 levels share. A template on the level's type: see half.h for why.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "ops/cpu/unroll.h"

namespace tutti::cpu {

template <class Level>
struct X86Vectors {
  static constexpr int kPrefetchBytes = 4096;  // ahead of what a stream reads
  static constexpr int kTurnsPrefetchBytes = 2048;  // the same of each panel that is taken in turn

  // Values read before are read again, not kept in registers that accumulators need.
  static void barrier() { asm volatile("" ::: "memory"); }
  // The same pointer, but what was read through `p` is not taken for what is read through it.
  static const uint8_t* another(const uint8_t* p) {
    asm("" : "+r"(p));
    return p;
  }
  // Inlined always: GCC takes a function that does nothing else for one without effect, and drops calls of it.
  template <int kBytes>
  TUTTI_INLINE static void prefetch(const uint8_t* p) {
    for (int i = 0; i < kBytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
  }

 protected:
  static __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  // Four activations as the 32-bit lane that a dot product takes.
  static int32_t four_codes(const int8_t* x) {
    int32_t four;
    std::memcpy(&four, x, 4);
    return four;
  }
};

}  // namespace tutti::cpu
