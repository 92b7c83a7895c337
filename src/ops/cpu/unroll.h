// Compile-time loops and dispatch for kernels whose tile sizes are template parameters.
#pragma once

// Kernels rely on their parts being inlined: accumulators must stay in registers.
#define TUTTI_INLINE __attribute__((always_inline))

namespace tutti::cpu {

// Calls f.operator()<n>() for a tile height (layout.h) that is only known at run time.
template <int kMax, class F>
TUTTI_INLINE inline void with_tile_rows(int n, F&& f) {
  if (n == kMax) return f.template operator()<kMax>();
  if constexpr (kMax > 8) {
    if (n == 8) return f.template operator()<8>();
  }
  if constexpr (kMax > 4) {
    if (n == 4) return f.template operator()<4>();
  }
  if constexpr (kMax > 2) {
    if (n == 2) return f.template operator()<2>();
  }
  if constexpr (kMax > 1) f.template operator()<1>();
}

// A number that is a type.
template <int kValue>
struct Constant {
  constexpr operator int() const { return kValue; }
};

// f.operator()<i>() for 0 <= i < kCount, unrolled.
template <int kCount, class F>
TUTTI_INLINE inline void for_constants(F&& f) {
  if constexpr (kCount > 0) {
    for_constants<kCount - 1>(f);
    f.template operator()<kCount - 1>();
  }
}

}  // namespace tutti::cpu
