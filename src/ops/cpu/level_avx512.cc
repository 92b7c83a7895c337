// The `avx512` level: AVX-512 F, BW, DQ and VL. This file alone is compiled for them.
#include "ops/cpu/make_level.h"
#include "ops/cpu/simd_avx512.h"

namespace tutti::cpu {

const LevelKernels& avx512_kernels() {
  static const LevelKernels kernels = make_level<Avx512<false>>(Isa::kAvx512, "avx512");
  return kernels;
}

}  // namespace tutti::cpu
