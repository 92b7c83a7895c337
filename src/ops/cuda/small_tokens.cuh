// Products with few tokens: what a block does to the tokens before it multiplies. They lie in shared memory as 16-bit
// rows, k cut to the block's slice: as they are, normed, or (FP8 weights) scaled to at most 1 and in half precision, in
// which E4M3 weights are exact.
#pragma once

#include "ops/cuda/bulk.cuh"
#include "ops/cuda/linear_call.h"

namespace tutti::cuda {

// What the kernel is told about them.
struct SmallTokens {
  const void* x;
  int64_t stride;  // elements
  int count;
  int k;
  const float* norm_weight;  // [k], nullptr: no norm
  float eps;
};

struct TokenSums {
  float squares;  // of x, over the whole row
  float most;     // of |x * norm weight|, in the slice
};

// Shared memory for the sums of every warp, and the results.
template <int kWarps>
struct TokenScratch {
  TokenSums sums[kSmallTokens][kWarps];
  float scales[kSmallTokens];  // of the staged elements
  float factors[kWarps][kSmallTokens];  // that the elements are multiplied by, a copy for each warp
};

// A norm's weights for this thread's first elements of a row; may be had before the previous kernel's end, as the rest
// comes into the L2. Elements are dealt to threads in units of 8.
template <int kThreads>
struct NormWeights {
  static constexpr int kKept = 2;
  float kept[kKept][8];

  __device__ __forceinline__ void expect(const SmallTokens& t, int first, int count) {
    if (t.norm_weight == nullptr) return;
#pragma unroll
    for (int u = 0; u < kKept; ++u) {
      const int i = (u * kThreads + static_cast<int>(threadIdx.x)) * 8;
      if (i < count) load(t.norm_weight + first + i, kept[u]);
    }
#if __CUDA_ARCH__ >= 900
    for (int i = kKept * kThreads * 8 + threadIdx.x * 32; i < count; i += kThreads * 32) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(t.norm_weight + first + i));
    }
#endif
  }
};

// Calls f(element in the slice, weights of it and the next 7) for this thread's units.
template <int kThreads, typename F>
__device__ __forceinline__ void each_unit(const SmallTokens& t, const NormWeights<kThreads>& weights, int first, int count, F&& f) {
#pragma unroll
  for (int u = 0; u < NormWeights<kThreads>::kKept; ++u) {
    const int i = (u * kThreads + static_cast<int>(threadIdx.x)) * 8;
    if (i < count) f(i, weights.kept[u]);
  }
#pragma unroll 2
  for (int i = (NormWeights<kThreads>::kKept * kThreads + static_cast<int>(threadIdx.x)) * 8; i < count; i += kThreads * 8) {
    float w[8] = {};
    if (t.norm_weight != nullptr) load(t.norm_weight + first + i, w);
    f(i, w);
  }
}

// Elements [first, first + count) of every token into rows of `stride` bytes at xs, by kWarps warps; ends with their barrier.
template <typename X, bool kScaled, int kWarps>
__device__ void stage_tokens(const SmallTokens& t, const NormWeights<kWarps * 32>& weights, TokenScratch<kWarps>& scratch, uint8_t* xs,
                             int stride, int first, int count) {
  constexpr int kThreads = kWarps * 32;
  const auto* x = static_cast<const X*>(t.x);
  const bool normed = t.norm_weight != nullptr;
  for (int token = 0; token < t.count; ++token) {
    for (int i = threadIdx.x * 8; i < count; i += kThreads * 8) copy16_async(xs + token * stride + i * 2, x + token * t.stride + first + i, true);
  }
  commit_copies();
  wait_copies<0>();
  if (!normed && !kScaled) {
    named_barrier(1, kThreads);
    return;
  }
  // Every thread works on what it copied itself.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int token = 0; token < t.count; ++token) {
    float squares = 0, most = 0;
    each_unit(t, weights, first, count, [&](int i, const float (&w)[8]) {
      float v[8];
      load(reinterpret_cast<const X*>(xs + token * stride + i * 2), v);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        squares += v[e] * v[e];
        if (kScaled) most = fmaxf(most, fabsf(normed ? v[e] * w[e] : v[e]));
      }
    });
    if (normed && count < t.k) {  // the rest of the row is other blocks'
      for (int i = threadIdx.x * 8; i < t.k; i += kThreads * 8) {
        if (i >= first && i < first + count) continue;
        float v[8];
        load(x + token * t.stride + i, v);
#pragma unroll
        for (int e = 0; e < 8; ++e) squares += v[e] * v[e];
      }
    }
    const TokenSums sums{normed ? warp_sum(squares) : 0.0f, kScaled ? warp_max(most) : 0.0f};
    if (lane == 0) scratch.sums[token][warp] = sums;
  }
  named_barrier(1, kThreads);
  // Four lanes for each of up to eight tokens add up the warps' sums.
  static_assert(kWarps == 8 && kSmallTokens == 8);
  const TokenSums a = scratch.sums[lane / 4][lane % 4], b = scratch.sums[lane / 4][lane % 4 + 4];
  float squares = a.squares + b.squares, most = fmaxf(a.most, b.most);
#pragma unroll
  for (int offset = 1; offset < 4; offset *= 2) {
    squares += __shfl_xor_sync(kAllLanes, squares, offset);
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
  }
  float factors = normed ? rsqrtf(squares / static_cast<float>(t.k) + t.eps) : 1.0f;
  if constexpr (kScaled) {
    if (warp == 0 && lane % 4 == 0) scratch.scales[lane / 4] = most * factors;
    factors = most > 0 ? 1.0f / most : 0.0f;
  }
  if (lane % 4 == 0) scratch.factors[warp][lane / 4] = factors;
  __syncwarp();
  each_unit(t, weights, first, count, [&](int i, const float (&w)[8]) {
    for (int token = 0; token < t.count; ++token) {
      const float factor = scratch.factors[warp][token];
      uint8_t* at = xs + token * stride + i * 2;
      float v[8];
      load(reinterpret_cast<const X*>(at), v);
#pragma unroll
      for (int e = 0; e < 8; ++e) v[e] *= normed ? factor * w[e] : factor;
      if constexpr (kScaled) store(reinterpret_cast<half*>(at), v);
      else store(reinterpret_cast<X*>(at), v);
    }
  });
  named_barrier(1, kThreads);
}

}  // namespace tutti::cuda
