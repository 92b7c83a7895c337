// The largest of floats and where it is, as one number to compare: NaN first, equal ones by falling index.
#pragma once

#include <cmath>

#include "ops/cuda/device.cuh"

namespace tutti::cuda {

using LargestKey = unsigned long long;  // the larger key is the better element; 0 is less than any

__device__ __forceinline__ LargestKey key_of(float x, int index) {
  const uint32_t bits = __float_as_uint(x == 0.0f ? 0.0f : x);  // both zeros are equal
  const uint32_t ordered = x != x ? 0u : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<LargestKey>(ordered) << 32 | (0xffffffffu - static_cast<uint32_t>(index));
}

__device__ __forceinline__ int32_t index_of(LargestKey key) { return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(key)); }

__device__ __forceinline__ float value_of(LargestKey key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  if (ordered == 0) return NAN;
  return __uint_as_float((ordered & 0x80000000u) != 0 ? ordered ^ 0x80000000u : ~ordered);
}

__device__ __forceinline__ LargestKey larger(LargestKey a, LargestKey b) { return a > b ? a : b; }

__device__ __forceinline__ LargestKey warp_largest(LargestKey key) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) key = larger(key, __shfl_xor_sync(kAllLanes, key, offset));
  return key;
}

}  // namespace tutti::cuda
