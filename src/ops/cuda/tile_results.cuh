// What becomes of the sums of a tile of linear_tile.cu: blocks of a cluster add up their parts, and each warp finishes whole
// tokens.
#pragma once

#include <algorithm>

#include "ops/cuda/bulk.cuh"
#include "ops/cuda/cluster.cuh"
#include "ops/cuda/small_write.cuh"

namespace tutti::cuda {

constexpr int kRows = 128;  // of a tile; a gated one has 64 of the gate and the up projection's for the same features
constexpr int kGroupRows = 64;
constexpr int kPieceBytes = 128;
constexpr int kWarps = 8;
constexpr int kConsumers = kWarps * 32;
constexpr int kThreads = kConsumers + 64;  // and a warp that has the pieces come, and one that finds the tokens' factors
constexpr int kMaxStages = 10;
constexpr int kWeightBytes = kRows * kPieceBytes;

constexpr int kMaxSlices = 8;  // blocks of a cluster
constexpr int kBlocksPerSM = 2;  // one multiplies while the other waits, or belongs to the next kernel and fills its ring

struct TileParams {
  int rows;
  int tokens;
  int tiles;
  int pieces;  // of a row; pairs of them where tiles are narrow
  int scale_columns;  // blocks of scales along a row
  int slices;  // of k
  const float* bias;
  const float* w_scales;
  const float* x_scales;
  const float* squares;  // of tokens that a norm is wanted of
  int square_parts;
  int norm_size;
  float eps;
  LeftForNorm left;
  bool block_scaled;
  bool add;
  bool fresh;
  bool narrow;  // tiles of 64 rows: the two groups multiply every second piece each, a stage has two
  bool wide;  // four results that follow each other are written at once
  void* out;
  int64_t out_stride;
  int stages;
  bool exchange_in_ring;  // a block has one tile: its sums may lie where its pieces were
  RopeWrite rope;
};

// A block works on kTokens tokens. A thread has kTokens / 2 of a tile's sums.
template <int kTokens>
constexpr int kTokenBytes = kTokens * kPieceBytes;
template <int kTokens>
constexpr int kStageBytes = kWeightBytes + kTokenBytes<kTokens>;

struct alignas(1024) SharedHead {  // the ring behind it starts where a swizzle pattern does
  Barrier full[kMaxStages];
  Barrier empty[kMaxStages];
  float factors[kMaxTileTokens];  // of each token's sums
};

// May a product have tiles of 64 rows?
template <ProductKind kKind, int kTokens>
constexpr bool kMayBeNarrow = kKind == ProductKind::kPlain && kTokens <= 16;

// The factor of a token's sums: its norm's, or the scale of its elements. Four threads take its squares, whatever the number
// of tokens.
__device__ __forceinline__ void find_factor(const TileParams& p, int token, float* factors) {
  float factor = 1.0f;
  if (p.squares != nullptr) {
    float sum = 0;
    if (token < p.tokens) {
      const float* from = p.squares + static_cast<int64_t>(token) * p.square_parts;
#pragma unroll 8
      for (int i = threadIdx.x % 4; i < p.square_parts; i += 4) sum += from[i];
    }
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    factor = rsqrtf(sum / p.norm_size + p.eps);
  } else if (p.x_scales != nullptr && token < p.tokens) {
    factor = p.x_scales[token];
  }
  if (threadIdx.x % 4 == 0) factors[token] = factor;
}

// Sums in shared memory: a token's, row by row. Value i of a thread is of row warp * 16 + lane / 4 + 8 * (i / 2 % 2) of the
// tile and of token i / 4 * 8 + lane % 4 * 2 + i % 2; a warp's lie in different banks.
constexpr int kSumStride = kRows + 4;
template <int kTokens>
constexpr size_t kSumBytes = sizeof(float) * kSumStride * kTokens;
__device__ __forceinline__ int place_of(int i) {
  const int lane = threadIdx.x % 32, row = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4 + i / 2 % 2 * 8;
  return (i / 4 * 8 + lane % 4 * 2 + i % 2) * kSumStride + row;
}

// A warp of the cluster finishes tokens first, first + step, ... of a tile, a lane four rows of it. So many tokens at a time:
// all, where two blocks or more share a tile of up to 32.
__device__ __forceinline__ int first_token() { return static_cast<int>(cluster_rank()) * kWarps + static_cast<int>(threadIdx.x) / 32; }
template <int kTokens>
constexpr int kOwn = (std::min(kTokens, 32) + 15) / 16;

// Is what sums meet read before they are computed? Not with so many that registers run short.
template <int kTokens>
constexpr bool kReadsFirst = kTokens <= 32;

// What a lane's sums meet on their way out.
template <typename Out, ProductKind kKind, int kCount>
struct Met {
  int row;    // of the weight, the first of four
  int exist;  // of the four
  float scale[4];
  float bias[4];
  float next_weight[4];  // of the norm behind
  float before[kKind == ProductKind::kPlain ? kCount : 1][4];
  float cos[kKind == ProductKind::kRotated ? kCount : 1][4], sin[kKind == ProductKind::kRotated ? kCount : 1][4];
  int64_t slots[kKind == ProductKind::kRotated ? kCount : 1];

  __device__ __forceinline__ void read_rows(const TileParams& p, int tile) {
    const int in_tile = static_cast<int>(threadIdx.x) % 32 * 4;
    row = tile * (p.narrow ? kGroupRows : kRows) + in_tile;
    int end = p.narrow ? min(p.rows, (tile + 1) * kGroupRows) : p.rows;
    if constexpr (kKind == ProductKind::kGated) {
      end = in_tile < kGroupRows ? p.rows / 2 : p.rows;
      row = end - p.rows / 2 + tile * kGroupRows + in_tile % kGroupRows;
    }
    exist = min(max(end - row, 0), 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scale[i] = i < exist && p.w_scales != nullptr && !p.block_scaled ? p.w_scales[row + i] : 1.0f;
      bias[i] = i < exist && p.bias != nullptr ? p.bias[row + i] : 0.0f;
      next_weight[i] = kKind == ProductKind::kPlain && i < exist && p.left.weight != nullptr ? p.left.weight[row + i] : 0.0f;
    }
  }

  // Of tokens first, first + step, ...: how they are rotated, and their slots.
  __device__ __forceinline__ void read_places(const TileParams& p, int first, int step) {
    if constexpr (kKind == ProductKind::kRotated) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int token = first + i * step, half = p.rope.head_dim / 2;
        slots[i] = -1;
        if (token >= p.tokens) continue;
        const float* angle = p.rope.cos_sin + static_cast<int64_t>(p.rope.positions[token]) * p.rope.head_dim + row % half;
        load(angle, cos[i]);
        load(angle + half, sin[i]);
        slots[i] = p.rope.slots[token];
      }
    }
  }

  // What is added to.
  __device__ __forceinline__ void read_stream(const TileParams& p, int first, int step) {
    if constexpr (kKind == ProductKind::kPlain) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int token = first + i * step;
        const Out* from = static_cast<const Out*>(p.out) + token * p.out_stride + row;
#pragma unroll
        for (int j = 0; j < 4; ++j) before[i][j] = 0.0f;
        if (!p.add || token >= p.tokens) continue;
        if (p.wide && exist == 4) load(from, before[i]);
        else for (int j = 0; j < 4; ++j) before[i][j] = j < exist ? to_float(from[j]) : 0.0f;
      }
    }
  }
};

template <typename Out>
__device__ __forceinline__ void store_four(Out* to, const float (&values)[4], bool wide, int exist) {
  if (wide && exist == 4) return store(to, values);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < exist) to[i] = from_float<Out>(values[i]);
  }
}

// Four elements of a head of q, k or v, rotated; `others` are those at half a head from them. q's go to `out`, the others to
// the token's slot.
template <typename Out>
__device__ __forceinline__ void write_rotated(const RopeWrite& r, Out* out, int row, int64_t slot, float (&own)[4], const float (&others)[4],
                                              const float (&cos)[4], const float (&sin)[4], bool wide) {
  const int head = row / r.head_dim, dim = row % r.head_dim;
  if (head < r.heads + r.kv_heads) {
    const float sign = dim < r.head_dim / 2 ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) own[i] = own[i] * cos[i] + sign * others[i] * sin[i];
  }
  if (head < r.heads) return store_four(out + row, own, wide, 4);
  if (slot < 0) return;  // a padded row
  const int64_t at = place_in_cache(r, slot, head - r.heads, dim);
  void* to = head < r.heads + r.kv_heads ? r.keys : r.values;
  if (r.fp8_cache) store(static_cast<fp8*>(to) + at, own);
  else store(static_cast<Out*>(to) + at, own);
}

// A token's sums become results.
template <typename Out, ProductKind kKind, int kCount>
__device__ __forceinline__ void write_token(const TileParams& p, float factor, const Met<Out, kKind, kCount>& met, int i, int tile, int token,
                                            float (&value)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) value[j] = value[j] * factor * met.scale[j] + met.bias[j];
  Out* to = static_cast<Out*>(p.out) + token * p.out_stride;
  if constexpr (kKind == ProductKind::kPlain) {
#pragma unroll
    for (int j = 0; j < 4; ++j) value[j] += met.before[i][j];
    store_four(to + met.row, value, p.wide, met.exist);
    if (p.left.weight == nullptr) return;
    float squares = 0, scaled[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float kept = j < met.exist ? to_float(from_float<Out>(value[j])) : 0.0f;
      squares += kept * kept;
      scaled[j] = kept * met.next_weight[j];
    }
    store_four(static_cast<Out*>(p.left.scaled) + token * p.left.stride + met.row, scaled, p.wide, met.exist);
    constexpr int kLanes = ops::kNormPart / 4;
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) squares += __shfl_xor_sync(kAllLanes, squares, offset);
    if (threadIdx.x % kLanes == 0 && met.exist > 0) p.left.squares[token * ops::norm_parts(p.rows) + met.row / ops::kNormPart] = squares;
  } else {
    const int away = kKind == ProductKind::kGated ? kGroupRows / 4 : p.rope.head_dim / 8;  // lanes
    float other[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) other[j] = __shfl_xor_sync(kAllLanes, value[j], away);
    if constexpr (kKind == ProductKind::kRotated) {  // a tile has whole heads
      if (met.exist > 0) write_rotated(p.rope, to, met.row, met.slots[i], value, other, met.cos[i], met.sin[i], p.wide);
    } else if (threadIdx.x % 32 < away) {
#pragma unroll
      for (int j = 0; j < 4; ++j) value[j] = silu(value[j]) * other[j];
      store_four(to + met.row, value, p.wide, met.exist);
    }
  }
}

// Four rows' sums of a token over up to kBlocks blocks of the cluster, always in their order. Blocks that are not there are
// read as others that are: no branch keeps a load from being on its way.
template <int kBlocks>
__device__ __forceinline__ void join(const TileParams& p, const float* sums, int token, float (&joined)[4]) {
  const auto* own = reinterpret_cast<const float4*>(sums + token * kSumStride) + threadIdx.x % 32;
  float4 parts[kBlocks];
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    if constexpr (kBlocks == 1) parts[block] = *own;
    else parts[block] = load_of_block(own, static_cast<unsigned>(min(block, p.slices - 1)));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) joined[i] = 0.0f;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    if (block >= p.slices) break;
    joined[0] += parts[block].x, joined[1] += parts[block].y, joined[2] += parts[block].z, joined[3] += parts[block].w;
  }
}

template <typename Out, ProductKind kKind, int kTokens>
__device__ void finish_tile(const TileParams& p, const float* factors, float* sums, int tile, const float (&acc)[kTokens / 2],
                            Met<Out, kKind, kOwn<kTokens>>& met) {
  named_barrier(1, kConsumers);  // what lay there has been read
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) sums[place_of(i)] = acc[i];
  if (p.slices > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    named_barrier(1, kConsumers);
  }
  const int begin = first_token(), step = p.slices * kWarps;
  const int more = kOwn<kTokens> * step;
#pragma unroll 1
  for (int first = begin; first < p.tokens; first += more) {
    if (first != begin || !kReadsFirst<kTokens>) {
      met.read_places(p, first, step);
      met.read_stream(p, first, step);
    }
    float values[kOwn<kTokens>][4];
#pragma unroll
    for (int i = 0; i < kOwn<kTokens>; ++i) {
      const int token = min(first + i * step, kTokens - 1);
      if (p.slices == 1) join<1>(p, sums, token, values[i]);
      else if (p.slices <= 4) join<4>(p, sums, token, values[i]);
      else join<kMaxSlices>(p, sums, token, values[i]);
    }
    if (p.slices > 1 && first + more >= p.tokens) cluster_arrive();  // has read the others
    if (kMayBeNarrow<kKind, kTokens> && p.narrow) {  // a half of the lanes has what the other group multiplied of the same rows
#pragma unroll
      for (int i = 0; i < kOwn<kTokens>; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) values[i][j] += __shfl_xor_sync(kAllLanes, values[i][j], 16);
      }
    }
#pragma unroll
    for (int i = 0; i < kOwn<kTokens>; ++i) {
      const int token = first + i * step;
      if (token < p.tokens) write_token<Out, kKind>(p, factors[token], met, i, tile, token, values[i]);
    }
  }
  if (p.slices == 1) return;
  if (begin >= p.tokens) cluster_arrive();
  cluster_wait();
}

}  // namespace tutti::cuda
