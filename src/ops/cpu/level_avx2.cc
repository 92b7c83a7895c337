// The `avx2` level: AVX2, FMA and F16C. This file alone is compiled for them.
#include "ops/cpu/make_level.h"
#include "ops/cpu/simd_avx2.h"

namespace tutti::cpu {

const LevelKernels& avx2_kernels() {
  static const LevelKernels kernels = make_level<Avx2>(Isa::kAvx2, "avx2");
  return kernels;
}

}  // namespace tutti::cpu
