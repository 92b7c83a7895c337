// Products with one or two tokens: what each warp does to its share of them before it multiplies. A warp multiplies the same
// pieces of k of every tile, so it stages those itself and waits for no other. A norm's factor takes the whole row: it is
// applied to the sums.
#pragma once

#include <type_traits>

#include "ops/cuda/small_tokens.cuh"

namespace tutti::cuda {

// Of each kWarps * kShare elements of k a warp has kShare, which become 16-bit elements in shared memory. T is the weights'
// type: bfloat16 meets tokens as they are, or times the norm's weight. Half precision, which E4M3 is widened to, exactly, has
// fewer exponents: there each 256 elements are brought to less than 2 by a power of two.
template <typename T, typename X, int kWarps, int kShare>
struct FewStaging {
  static constexpr bool kScaled = !std::is_same_v<T, bf16>;
  static constexpr int kRound = 32 * 8;  // elements that a warp stages at once
  static constexpr int kKept = 2;        // rounds whose norm weights are had before the previous kernel's end
  float kept[kKept][8];

  // This lane's first element of a round.
  static __device__ __forceinline__ int element(int round, int warp) {
    const int unit = round * 32 + static_cast<int>(threadIdx.x) % 32;
    return unit / (kShare / 8) * (kWarps * kShare) + warp * kShare + unit % (kShare / 8) * 8;
  }

  // The norm's weights of the rounds from `first` on.
  __device__ __forceinline__ void expect(const SmallTokens& t, int first, int warp) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int at = element(first + i, warp);
      if (at < t.k) load(t.norm_weight + at, kept[i]);
    }
  }

  // A token into `to`, zeros beyond its end. Each warp leaves a scale for each round (kScaled) and its sum of squares.
  template <bool kNormed>
  __device__ __forceinline__ void stage(const SmallTokens& t, int token, int rounds, int warp, uint8_t* to, float* scales, float* squares) {
    constexpr int kBatch = kNormed ? kKept : 4;  // rounds whose elements are asked for at once
    const X* x = static_cast<const X*>(t.x) + token * t.stride;
    float square = 0;
#pragma unroll 1
    for (int first = 0; first < rounds; first += kBatch) {
      uint4 raw[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = element(first + i, warp);
        raw[i] = make_uint4(0, 0, 0, 0);
        if (at < t.k) raw[i] = *reinterpret_cast<const uint4*>(x + at);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (first + i >= rounds) break;
        auto* place = reinterpret_cast<half*>(to) + element(first + i, warp);
        if constexpr (!kNormed && !kScaled) {
          *reinterpret_cast<uint4*>(place) = raw[i];
        } else {
          float v[8];
          load(reinterpret_cast<const X*>(&raw[i]), v);
          if constexpr (kNormed) {
            const bool inside = element(first + i, warp) < t.k;  // else its weights were not read
#pragma unroll
            for (int e = 0; e < 8; ++e) square += v[e] * v[e], v[e] = inside ? v[e] * kept[i][e] : 0.0f;
          }
          if constexpr (kScaled) {
            float most = 0;
#pragma unroll
            for (int e = 0; e < 8; ++e) most = fmaxf(most, fabsf(v[e]));
            const uint32_t exponent = __reduce_max_sync(kAllLanes, __float_as_uint(most)) & 0x7f800000u;
            const float factor = __uint_as_float(0x7f000000u - exponent);
#pragma unroll
            for (int e = 0; e < 8; ++e) v[e] *= factor;
            store(place, v);
            if (threadIdx.x % 32 == 0) scales[(first + i) * kWarps + warp] = __uint_as_float(exponent);
          } else {
            store(reinterpret_cast<X*>(place), v);
          }
        }
      }
      if constexpr (kNormed) {
        if (first + kBatch < rounds) expect(t, first + kBatch, warp);
      }
    }
    if constexpr (kNormed) {
      if (token + 1 < t.count && rounds > kBatch) expect(t, 0, warp);
      square = warp_sum(square);
      if (threadIdx.x % 32 == 0) squares[warp] = square;
    }
  }
};

}  // namespace tutti::cuda
