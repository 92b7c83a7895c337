// The `vnni` level: AVX-512 with VNNI. This file alone is compiled for them.
#include "ops/cpu/make_level.h"
#include "ops/cpu/simd_avx512.h"

namespace tutti::cpu {

const LevelKernels& vnni_kernels() {
  static const LevelKernels kernels = make_level<Avx512<true>>(Isa::kVnni, "vnni");
  return kernels;
}

}  // namespace tutti::cpu
