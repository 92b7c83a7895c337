// The `portable` level: no instruction set beyond the target's own baseline.
#include "ops/cpu/make_level.h"
#include "ops/cpu/simd_portable.h"

namespace tutti::cpu {

const LevelKernels& portable_kernels() {
  static const LevelKernels kernels = make_level<Portable>(Isa::kPortable, "portable");
  return kernels;
}

}  // namespace tutti::cpu
