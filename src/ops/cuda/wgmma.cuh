// Asynchronous matrix instructions of Hopper, which exist nowhere else: in builds for other architectures the functions are
// empty, and host code never launches their kernels there.
#pragma once

#include "ops/cuda/device.cuh"

namespace tutti::cuda {

// A tile of rows of 128 bytes, swizzled by the copy engine, as the matrix instructions want it described.
__device__ __forceinline__ uint64_t describe(const void* tile) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 / 16} << 32, kUnused = uint64_t{1} << 16;
  return kSwizzle128 | kEightRows | kUnused | ((shared_address(tile) & 0x3ffff) >> 4);
}

#define TUTTI_WGMMA(shape, types, rest, sums, a_at, b_at, add_at, ...)                                \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_at ", 0;\n"                                     \
               "wgmma.mma_async.sync.aligned." shape ".f32." types " {" sums "}, " a_at ", " b_at         \
               ", p, 1, 1" rest ";\n}\n"                                                               \
               : __VA_ARGS__                                                                           \
               : "l"(a), "l"(b), "r"(static_cast<int>(add)))
#define TUTTI_SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TUTTI_WGMMA_8(k, types, rest) TUTTI_WGMMA("m64n8k" k, types, rest, "%0,%1,%2,%3", "%4", "%5", "%6", TUTTI_SUMS_4(0))
#define TUTTI_WGMMA_16(k, types, rest) \
  TUTTI_WGMMA("m64n16k" k, types, rest, "%0,%1,%2,%3,%4,%5,%6,%7", "%8", "%9", "%10", TUTTI_SUMS_4(0), TUTTI_SUMS_4(4))
#define TUTTI_WGMMA_32(k, types, rest)                                                                                    \
  TUTTI_WGMMA("m64n32k" k, types, rest, "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15", "%16", "%17", "%18",     \
              TUTTI_SUMS_4(0), TUTTI_SUMS_4(4), TUTTI_SUMS_4(8), TUTTI_SUMS_4(12))
#define TUTTI_WGMMA_64(k, types, rest)                                                                                        \
  TUTTI_WGMMA("m64n64k" k, types, rest,                                                                                       \
              "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
              "%30,%31",                                                                                                      \
              "%32", "%33", "%34", TUTTI_SUMS_4(0), TUTTI_SUMS_4(4), TUTTI_SUMS_4(8), TUTTI_SUMS_4(12), TUTTI_SUMS_4(16),     \
              TUTTI_SUMS_4(20), TUTTI_SUMS_4(24), TUTTI_SUMS_4(28))
#define TUTTI_WGMMA_OF(k, types, rest)                        \
  if constexpr (kSums == 4) TUTTI_WGMMA_8(k, types, rest);    \
  else if constexpr (kSums == 8) TUTTI_WGMMA_16(k, types, rest); \
  else if constexpr (kSums == 16) TUTTI_WGMMA_32(k, types, rest); \
  else TUTTI_WGMMA_64(k, types, rest)

// d = a b^T (+ d): a 64 rows, b 2 kSums rows, 32 bytes of k of each.
template <typename T, int kSums>
__device__ __forceinline__ void multiply(float (&d)[kSums], uint64_t a, uint64_t b, bool add) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (std::is_same_v<T, bf16>) {
    TUTTI_WGMMA_OF("16", "bf16.bf16", ", 0, 0");
  } else if constexpr (std::is_same_v<T, half>) {
    TUTTI_WGMMA_OF("16", "f16.f16", ", 0, 0");
  } else {
    TUTTI_WGMMA_OF("32", "e4m3.e4m3", "");
  }
#endif
}

#undef TUTTI_WGMMA_OF
#undef TUTTI_WGMMA_64
#undef TUTTI_WGMMA_32
#undef TUTTI_WGMMA_16
#undef TUTTI_WGMMA_8
#undef TUTTI_SUMS_4
#undef TUTTI_WGMMA

__device__ __forceinline__ void begin_multiply() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void end_multiply() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}

}  // namespace tutti::cuda
