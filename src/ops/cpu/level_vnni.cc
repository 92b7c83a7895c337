// The `vnni` level: AVX-512 with VNNI. This file alone is compiled for them.
#include "ops/cpu/make_level.h"
#include "ops/cpu/simd_avx512.h"

namespace tutti::cpu {

const LevelKernels& vnni_kernels() {
  static const LevelKernels kernels = [] {
    LevelKernels k = make_level<Avx512<true>>(Isa::kVnni, "vnni");
    // One row that takes panels in turn reads Q4_0 a quarter faster on Emerald Rapids; on Zen 4 it gains nothing, and Q8_0 loses.
    __builtin_cpu_init();
    if (!__builtin_cpu_is("intel")) BlockFormats::for_each([&]<class Format>() { k.panels_in_turn[static_cast<size_t>(Format::kType)] = nullptr; });
    return k;
  }();
  return kernels;
}

}  // namespace tutti::cpu
