// Products with few tokens: 16 bytes of weight rows against as many elements of tokens, on the matrix units.
#pragma once

#include "ops/cuda/device.cuh"

namespace tutti::cuda {

// Bytes of a staged token for each byte of a weight row; and the padding that keeps the tokens in different banks.
template <typename T>
constexpr int kWiden = sizeof(T) == 1 ? 2 : 1;
__host__ __device__ constexpr int pad_of(int widen, int tokens) { return tokens == 1 ? 0 : widen == 2 ? 16 : 64; }

__device__ __forceinline__ uint4 load_shared(const uint8_t* p) { return *reinterpret_cast<const uint4*>(p); }

// Four E4M3 as halves, exactly. The instruction takes either half of a register.
__device__ __forceinline__ uint2 widen4(uint32_t four) {
  uint2 wide{};
#if __CUDA_ARCH__ >= 900
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n"
      "}\n"
      : "=r"(wide.x), "=r"(wide.y)
      : "r"(four));
#endif
  return wide;
}

// 16 bytes of each of two weight rows against as many elements of a token.
template <typename T>
__device__ __forceinline__ void multiply_unit(float (&acc)[4], const uint4& upper, const uint4& lower, const uint4 (&x)[kWiden<T>]) {
  if constexpr (sizeof(T) == 2) {
    mma<T>(acc, upper.x, lower.x, upper.y, lower.y, x[0].x, x[0].y);
    mma<T>(acc, upper.z, lower.z, upper.w, lower.w, x[0].z, x[0].w);
  } else {
    const auto four = [&](uint32_t u, uint32_t l, uint32_t x0, uint32_t x1) {
      const uint2 a = widen4(u), b = widen4(l);
      mma<half>(acc, a.x, b.x, a.y, b.y, x0, x1);
    };
    four(upper.x, lower.x, x[0].x, x[0].y);
    four(upper.y, lower.y, x[0].z, x[0].w);
    four(upper.z, lower.z, x[1].x, x[1].y);
    four(upper.w, lower.w, x[1].z, x[1].w);
  }
}

}  // namespace tutti::cuda
