// Compile-time loops and dispatch for kernels whose tile sizes are template parameters.
#pragma once

// Kernels rely on their parts being inlined: accumulators must stay in registers.
#define TUTTI_INLINE __attribute__((always_inline))

namespace tutti::cpu {

// Calls f.operator()<n>() for the run-time 1 <= n <= kMax.
template <int kMax, class F>
TUTTI_INLINE inline void with_constant(int n, F&& f) {
  if constexpr (kMax > 1) {
    if (n < kMax) return with_constant<kMax - 1>(n, f);
  }
  f.template operator()<kMax>();
}

// f.operator()<i>() for 0 <= i < kCount, unrolled.
template <int kCount, class F>
TUTTI_INLINE inline void for_constants(F&& f) {
  if constexpr (kCount > 0) {
    for_constants<kCount - 1>(f);
    f.template operator()<kCount - 1>();
  }
}

}  // namespace tutti::cpu
