// What becomes of the sums of a product's tile. With few tokens a thread has the sum of one token and row, and in a product of
// pairs also that of the row that belongs to it: the up projection's, or the other half of a head.
#pragma once

#include "ops/cuda/bulk.cuh"
#include "ops/cuda/linear_call.h"

namespace tutti::cuda {

enum class ProductKind { kPlain, kGated, kRotated };

template <ProductKind kKind>
constexpr int kSumsOf = kKind == ProductKind::kPlain ? 1 : 2;

struct SmallOutput {
  const float* bias;
  const float* row_scales;  // FP8 with a scale for each row
  void* out;
  int64_t stride;
  int rows;
  bool add;
  RopeWrite rope;
};

// From a row to the one that it is paired with.
template <ProductKind kKind>
__device__ __forceinline__ int partner(const SmallOutput& o) {
  return kKind == ProductKind::kGated ? o.rows / 2 : kKind == ProductKind::kRotated ? o.rope.head_dim / 2 : 0;
}

// Where element `dim` of a head stands among the keys, or the values: heads are counted through both.
__device__ __forceinline__ int64_t place_in_cache(const RopeWrite& r, int64_t slot, int head, int dim) {
  const auto at = static_cast<uint32_t>(slot), size = static_cast<uint32_t>(r.block_size);  // fewer than 2^32 tokens
  const uint32_t block = at / size, offset = at % size, key = r.swizzled ? offset % 8 : 0;
  const int64_t row = (static_cast<int64_t>(block) * r.kv_heads + head % r.kv_heads) * size + offset;
  return row * r.head_dim + (dim / 8 ^ key) * 8 + dim % 8;
}

template <typename KV>
__device__ __forceinline__ void write_cache(const RopeWrite& r, int64_t slot, int head, int dim, float low, float high) {
  KV* to = static_cast<KV*>(head < r.kv_heads ? r.keys : r.values);
  to[place_in_cache(r, slot, head, dim)] = from_float<KV>(low);
  to[place_in_cache(r, slot, head, dim + r.head_dim / 2)] = from_float<KV>(high);
}

// A pair of sums, rows `row` and row + head_dim / 2 of q, k and v, rotated: q's to `out`, the others to the token's slot.
template <typename X, typename Out>
__device__ __forceinline__ void write_rotated(const RopeWrite& r, Out* out, int row, int64_t slot, float first, float second, float cos,
                                              float sin) {
  const int head = row / r.head_dim, dim = row % r.head_dim;
  const bool turns = head < r.heads + r.kv_heads;
  const float low = turns ? first * cos - second * sin : first, high = turns ? second * cos + first * sin : second;
  if (head < r.heads) {
    out[row] = from_float<Out>(low);
    out[row + r.head_dim / 2] = from_float<Out>(high);
  } else if (slot >= 0) {  // else a padded row
    if (r.fp8_cache) write_cache<fp8>(r, slot, head - r.heads, dim, low, high);
    else write_cache<X>(r, slot, head - r.heads, dim, low, high);
  }
}

// What a sum meets on its way out, read while the tile's weights are on their way.
template <typename X, typename Out, ProductKind kKind>
struct Finish {
  float scale[kSumsOf<kKind>];
  float bias[kSumsOf<kKind>];
  float added = 0;
  float cos = 0, sin = 0;
  int64_t slot = -1;

  __device__ __forceinline__ void expect(const SmallOutput& o, int token, int row) {
#pragma unroll
    for (int i = 0; i < kSumsOf<kKind>; ++i) {
      const int at = row + i * partner<kKind>(o);
      scale[i] = o.row_scales == nullptr ? 1.0f : o.row_scales[at];
      bias[i] = o.bias == nullptr ? 0.0f : o.bias[at];
    }
    if (kKind == ProductKind::kPlain && o.add) added = to_float(static_cast<const Out*>(o.out)[token * o.stride + row]);
    if constexpr (kKind == ProductKind::kRotated) {
      const float* angle = o.rope.cos_sin + static_cast<int64_t>(o.rope.positions[token]) * o.rope.head_dim + row % o.rope.head_dim;
      cos = angle[0];
      sin = angle[o.rope.head_dim / 2];
      slot = o.rope.slots[token];
    }
  }

  __device__ __forceinline__ float first_of(const float (&sum)[kSumsOf<kKind>]) const { return sum[0] * scale[0] + bias[0]; }

  __device__ __forceinline__ void write(const SmallOutput& o, int token, int row, const float (&sum)[kSumsOf<kKind>]) const {
    Out* to = static_cast<Out*>(o.out) + token * o.stride;
    const float first = first_of(sum);
    if constexpr (kKind == ProductKind::kPlain) {
      to[row] = from_float<Out>(first + added);
    } else if constexpr (kKind == ProductKind::kGated) {
      to[row] = from_float<Out>(silu(first) * (sum[1] * scale[1] + bias[1]));
    } else {
      write_rotated<X>(o.rope, to, row, slot, first, sum[1] * scale[1] + bias[1], cos, sin);
    }
  }
};

}  // namespace tutti::cuda
