// The inner step of attention (arXiv:2205.14135, arXiv:2307.08691): a warp's 16 rows of queries against a tile of keys
// and values in shared memory, with a running maximum and sum.
#pragma once

#include "ops/cuda/attention.h"
#include "ops/cuda/bulk.cuh"

namespace tutti::cuda {

constexpr int kTileTokens = 64;
constexpr int kPadElements = 8;  // a row of a tile is one 16-byte unit longer: eight rows lie in different banks

template <int kDim>
constexpr int kTileStride = kDim + kPadElements;

// How a tile of keys or values lies in shared memory: as the copy engine brings it from a swizzled cache, or padded.
template <int kDim, bool kBulk>
struct TileLayout {
  static constexpr int kRow = kBulk ? kDim : kTileStride<kDim>;
  static constexpr int kElements = kTileTokens * kRow;
  static __device__ __forceinline__ int at(int token, int dim) { return token * kRow + (kBulk ? (dim / 8 ^ token % 8) * 8 : dim); }
};

__device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p)));
}

__device__ __forceinline__ void ldmatrix_transposed(uint32_t (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p)));
}

// A row of 8 or 16 elements of the cache into a tile of T.
template <typename T, typename KV>
__device__ __forceinline__ void copy_unit(T* to, const KV* from, bool valid) {
  if constexpr (sizeof(KV) == 2) {
    copy16_async(to, from, valid);
  } else {
    float v[8] = {};
    if (valid) load(from, v);
    store(to, v);
  }
}

// Keys and values of tokens [first, first + kTileTokens) of one sequence and head; zeros from `end` on, and beyond head_dim.
template <typename T, typename KV, int kDim, int kThreads>
__device__ __forceinline__ void copy_tile(T* keys, T* values, const AttentionArgs& a, const int32_t* table, int kv_head, int first, int end) {
  constexpr int kUnits = kDim / 8;
#pragma unroll 4
  for (int i = threadIdx.x; i < kTileTokens * kUnits; i += kThreads) {
    const int token = first + i / kUnits, dim = i % kUnits * 8;
    const bool valid = token < end && dim < a.head_dim;
    int64_t from = 0;
    if (valid) {
      const int in_seq = a.block_shift >= 0 ? token >> a.block_shift : token / a.block_size;
      const int64_t head = static_cast<int64_t>(table[in_seq]) * a.num_kv_heads + kv_head;
      const int at = a.swizzled ? (dim / 8 ^ token % 8) * 8 : dim;
      from = (head * a.block_size + token - in_seq * a.block_size) * a.head_dim + at;
    }
    const int to = i / kUnits * kTileStride<kDim> + dim;
    copy_unit(keys + to, static_cast<const KV*>(a.keys) + from, valid);
    copy_unit(values + to, static_cast<const KV*>(a.values) + from, valid);
  }
}

// Tiles on their way: one warp has the copy engine bring them, the others use them in order. `kConsumers` is in warps.
template <int kStages, int kConsumers>
struct TileRing {
  Barrier full[kStages];
  Barrier empty[kStages];

  __device__ void init() {  // one thread, before a barrier of the block
    for (int s = 0; s < kStages; ++s) {
      init_barrier(&full[s], 1);
      init_barrier(&empty[s], kConsumers);
    }
    publish_barriers();
  }
  __device__ void wait_full(int index) { wait_phase(&full[index % kStages], index / kStages % 2); }
  __device__ void wait_empty(int index) { wait_phase(&empty[index % kStages], (index / kStages + 1) % 2); }
  __device__ void release(int index) {  // by all lanes of a consumer
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(&empty[index % kStages]);
  }

  // Which of `count` tiles comes at `index`: the last one, often a short one, when the ring has been full, not at the end,
  // where a block has nothing else on its way.
  static __device__ __forceinline__ int tile_at(int index, int count) {
    if (count <= kStages + 1 || index < kStages) return index;
    return index == kStages ? count - 1 : index - 1;
  }

  // A whole warp: tiles [begin, end) of one sequence and head into keys[stage] and values[stage]. Tokens from
  // `first_new` on are written by this step: for them the previous kernel's end is waited for. Before that, when the old
  // ones of the first tile are asked for, calls asked().
  template <bool kLastEarly, typename T, int kElements, typename Asked>
  __device__ void produce(T (*keys)[kElements], T (*values)[kElements], const AttentionArgs& a, const int32_t* table, int kv_head,
                          int begin, int end, int length, int first_new, Asked&& asked) {
    const int row_bytes = a.head_dim * static_cast<int>(sizeof(T)), lane = threadIdx.x % 32;
    bool waited = false;
    for (int index = 0; index < end - begin; ++index) {
      const int tile = begin + (kLastEarly ? tile_at(index, end - begin) : index), stage = index % kStages;
      const int first = tile * kTileTokens, last = min(first + kTileTokens, length);
      wait_empty(index);
      if (lane == 0) arrive_expect(&full[stage], static_cast<uint32_t>(2 * (last - first) * row_bytes));
      __syncwarp();
      const auto bring = [&](int from_token, int to_token) {
        for (int block = from_token / a.block_size + lane; block * a.block_size < to_token; block += 32) {
          const int from = max(from_token, block * a.block_size), to = min(to_token, (block + 1) * a.block_size);
          const int64_t head = static_cast<int64_t>(table[block]) * a.num_kv_heads + kv_head;
          const int64_t at = (head * a.block_size + from - block * a.block_size) * a.head_dim;
          const auto bytes = static_cast<uint32_t>((to - from) * row_bytes);
          bulk_copy(keys[stage] + (from - first) * a.head_dim, static_cast<const T*>(a.keys) + at, bytes, &full[stage]);
          bulk_copy(values[stage] + (from - first) * a.head_dim, static_cast<const T*>(a.values) + at, bytes, &full[stage]);
        }
      };
      const int old = waited ? last : max(first, min(last, first_new));
      bring(first, old);
      if (index == 0) asked();
      if (old == last) continue;
      wait_for_previous();
      waited = true;
      bring(old, last);
    }
  }

  // Values of the last tile's rows that no token fills: a probability of zero times whatever lay there must be zero. Only
  // where the ring has not been full before; all threads, before a barrier of the block.
  template <typename T, int kElements>
  static __device__ void clear_tail(T (*values)[kElements], int head_dim, int begin, int end, int length) {
    const int tile = (length - 1) / kTileTokens, used = length - tile * kTileTokens;
    if (used == kTileTokens || tile < begin || tile >= end || tile - begin >= kStages) return;
    for (int i = used * head_dim / 8 + threadIdx.x; i < kTileTokens * head_dim / 8; i += blockDim.x) {
      reinterpret_cast<uint4*>(values[tile - begin])[i] = make_uint4(0, 0, 0, 0);
    }
  }
};

// A warp's rows: this lane has rows group and group + 8 (lane = 4 * group + member).
template <int kDim>
struct RowState {
  float out[kDim / 8][4];
  float max[2];
  float sum[2];  // of this lane's own columns until finish()

  __device__ void clear() {
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[d][i] = 0.0f;
    }
    max[0] = max[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
  }
  __device__ void finish() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] += __shfl_xor_sync(kAllLanes, sum[h], 1);
      sum[h] += __shfl_xor_sync(kAllLanes, sum[h], 2);
    }
  }
};

// Which keys a row sees: tokens [first, last].
struct Visible {
  int first;
  int last;
};

__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// scores = q keys^T for kTokens tokens, capped and masked. Returns the factor that they still want: powers of two follow.
template <typename T, int kDim, int kTokens, typename Tile>
__device__ __forceinline__ float compute_scores(float (&s)[kTokens / 8][4], const T* q, const T* keys, int in_tile, const AttentionArgs& a,
                                               int first_token, const Visible (&rows)[2], bool masked) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kTokens / 8; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
  for (int k = 0; k < kDim; k += 16) {
    uint32_t x[4];
    ldmatrix(x, q + lane % 16 * kTileStride<kDim> + k + lane / 16 * 8);
#pragma unroll
    for (int n = 0; n < kTokens / 16; ++n) {
      uint32_t y[4];
      ldmatrix(y, keys + Tile::at(in_tile + n * 16 + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
      mma<T>(s[2 * n], x[0], x[1], x[2], x[3], y[0], y[1]);
      mma<T>(s[2 * n + 1], x[0], x[1], x[2], x[3], y[2], y[3]);
    }
  }
  if (masked) {
#pragma unroll
    for (int n = 0; n < kTokens / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = first_token + n * 8 + lane % 4 * 2 + i % 2;
        if (token < rows[i / 2].first || token > rows[i / 2].last) s[n][i] = -INFINITY;
      }
    }
  }
  if (a.soft_cap <= 0) return a.scale;
  constexpr float kLog2E = 1.4426950408889634f;
#pragma unroll
  for (int n = 0; n < kTokens / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // -infinity stays: it is a masked one.
      if (s[n][i] != -INFINITY) s[n][i] = kLog2E * a.soft_cap * tanhf(s[n][i] * a.scale / (kLog2E * a.soft_cap));
    }
  }
  return 1.0f;
}

// Takes kTokens tokens into the state: the tile's rows from `in_tile` on, the first of which is `first_token`.
template <typename T, int kDim, int kTokens, typename Tile>
__device__ __forceinline__ void attend(RowState<kDim>& state, const T* q, const T* keys, const T* values, int in_tile,
                                       const AttentionArgs& a, int first_token, const Visible (&rows)[2], bool masked) {
  const int lane = threadIdx.x % 32;
  float s[kTokens / 8][4];
  const float scale = compute_scores<T, kDim, kTokens, Tile>(s, q, keys, in_tile, a, first_token, rows, masked);
  float shrink[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float max = -INFINITY;
#pragma unroll
    for (int n = 0; n < kTokens / 8; ++n) max = fmaxf(max, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 1));
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
    max = fmaxf(state.max[h], max * scale);
    const float base = max == -INFINITY ? 0.0f : max;  // nothing seen yet
    shrink[h] = power_of_two(state.max[h] - base);
    state.max[h] = max;
    state.sum[h] *= shrink[h];
#pragma unroll
    for (int n = 0; n < kTokens / 8; ++n) {
      s[n][2 * h] = power_of_two(s[n][2 * h] * scale - base);
      s[n][2 * h + 1] = power_of_two(s[n][2 * h + 1] * scale - base);
      state.sum[h] += s[n][2 * h] + s[n][2 * h + 1];
    }
  }
#pragma unroll
  for (int d = 0; d < kDim / 8; ++d) {
    state.out[d][0] *= shrink[0];
    state.out[d][1] *= shrink[0];
    state.out[d][2] *= shrink[1];
    state.out[d][3] *= shrink[1];
  }
#pragma unroll
  for (int n = 0; n < kTokens / 16; ++n) {
    const uint32_t p0 = pack2<T>(s[2 * n][0], s[2 * n][1]), p1 = pack2<T>(s[2 * n][2], s[2 * n][3]);
    const uint32_t p2 = pack2<T>(s[2 * n + 1][0], s[2 * n + 1][1]), p3 = pack2<T>(s[2 * n + 1][2], s[2 * n + 1][3]);
#pragma unroll
    for (int d = 0; d < kDim; d += 16) {
      uint32_t v[4];
      ldmatrix_transposed(v, values + Tile::at(in_tile + n * 16 + lane % 16, d + lane / 16 * 8));
      mma<T>(state.out[d / 8], p0, p1, p2, p3, v[0], v[1]);
      mma<T>(state.out[d / 8 + 1], p0, p1, p2, p3, v[2], v[3]);
    }
  }
}

// Whether tiles can come through the copy engine.
inline bool takes_bulk(const Context& ctx, const AttentionArgs& args, int dim) {
  return ctx.cuda->capability() >= 90 && args.swizzled && args.head_dim == dim;
}

// Calls go.operator()<T, KV, kDim>() for the types and dimension at hand.
template <typename Go>
void by_attention(int dim, DType activations, DType cache, Go&& go) {
  const auto by_dim = [&]<typename T, typename KV>() {
    switch (dim) {
      case 64: return go.template operator()<T, KV, 64>();
      case 96: return go.template operator()<T, KV, 96>();
      case 128: return go.template operator()<T, KV, 128>();
      case 192: return go.template operator()<T, KV, 192>();
      default: CHECK_EQ(dim, 256); return go.template operator()<T, KV, 256>();
    }
  };
  if (activations == DType::kBF16) {
    if (cache == DType::kF8E4M3) return by_dim.template operator()<bf16, fp8>();
    CHECK(cache == DType::kBF16);
    return by_dim.template operator()<bf16, bf16>();
  }
  CHECK(activations == DType::kF16);
  if (cache == DType::kF8E4M3) return by_dim.template operator()<half, fp8>();
  CHECK(cache == DType::kF16);
  return by_dim.template operator()<half, half>();
}

}  // namespace tutti::cuda
