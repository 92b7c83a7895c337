// Attention of sequences with one query row: a block takes the query heads that share a key head (up to 16) against a
// part of the sequence's keys. Its four warps each take 16 tokens of a tile of 64 and are joined at the end; then the parts
// of a cluster of blocks, each block some of the results; and last those of several clusters by the block that arrives last.
// All in their order. A fifth warp keeps the tiles coming through the bulk copy engine;
// where there is none (before compute capability 9.0) or the cache is not swizzled, the four copy them themselves.
//
// What several clusters have goes through memory, which takes longer than a block takes for another tile.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/attention.cuh"
#include "ops/cuda/cluster.cuh"

namespace tutti::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
// Stages of the ring that the fifth warp fills; 0: the four warps copy, into two buffers in turn; -1: into one. Two stages where parts are
// short (kShallowSlots): then the block fits beside those of the product before it, and those of the product after it beside this.
// One where more do not fit.
constexpr int kCopying = 0, kCopyingOne = -1, kSingle = 1, kShallow = 2;
// So many tiles are a block's, rather than that there are several clusters.
constexpr int kTilesOfBlock = 2;
template <int kDim>
constexpr int kDeep = kDim <= 128 ? 3 : 2;
static_assert(kWarps * 16 == kTileTokens);

template <typename T, int kDim, int kRing>
struct DecodeShared {
  static constexpr int kStages = kRing == kCopying ? 2 : kRing == kCopyingOne ? 1 : kRing;
  using Tile = TileLayout<kDim, (kRing > 0)>;
  T q[kDecodeRows * kTileStride<kDim>];
  union {
    struct {
      T keys[kStages][Tile::kElements];
      T values[kStages][Tile::kElements];
    } tiles;
    float out[kWarps][kDecodeRows][kDim + 8];  // when the tiles are done; rows of a warp's store in different banks
  };
  float max[kWarps][kDecodeRows];
  float sum[kWarps][kDecodeRows];
  float2 stats[kDecodeRows];  // of the block: maximum, sum
  TileRing<kStages, kWarps> ring;
  unsigned last;
};

// The queries of heads [0, rows) of a token, zeros below and beyond head_dim.
template <typename T, int kDim>
__device__ void load_queries(T* q, const T* from, int rows, int head_dim) {
  constexpr int kUnits = kDim / 8;
  for (int i = threadIdx.x; i < kDecodeRows * kUnits; i += kThreads) {
    const int row = i / kUnits, dim = i % kUnits * 8;
    const bool valid = row < rows && dim < head_dim;
    copy16_async(q + row * kTileStride<kDim> + dim, valid ? from + row * head_dim + dim : from, valid);
  }
}

// The warps' states of rows [0, rows) to shared memory.
template <typename Shared, int kDim>
__device__ void share_states(Shared& shared, RowState<kDim>& state, int rows) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  state.finish();
  named_barrier(1, kThreads);  // the tiles are done
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = group + 8 * h;
    if (row >= rows) continue;
    if (member == 0) {
      shared.max[warp][row] = state.max[h];
      shared.sum[warp][row] = state.sum[h];
    }
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      *reinterpret_cast<float2*>(&shared.out[warp][row][d * 8 + member * 2]) = make_float2(state.out[d][2 * h], state.out[d][2 * h + 1]);
    }
  }
  named_barrier(1, kThreads);
}

struct Joined {
  float max;
  float sum;
  float out[4];
};

// A row's dimensions [dim, dim + 4) of the block's result from the four warps' parts.
template <typename Shared>
__device__ Joined joined(const Shared& shared, int row, int dim) {
  Joined all{-INFINITY, 0.0f, {}};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) all.max = fmaxf(all.max, shared.max[w][row]);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float weight = all.max == -INFINITY ? 0.0f : exp2f(shared.max[w][row] - all.max);
    all.sum += weight * shared.sum[w][row];
    float out[4];
    load(&shared.out[w][row][dim], out);
#pragma unroll
    for (int i = 0; i < 4; ++i) all.out[i] += weight * out[i];
  }
  return all;
}

// The parts of all clusters of one sequence and head, by the block that arrived last. `weights`: [active, kDecodeRows] floats
// of shared memory that nothing else uses any more.
template <typename T>
__device__ void join_clusters(const AttentionArgs& a, int64_t slot, int active, int rows, float* weights, T* out) {
  const float* stats = a.stats + slot * (a.splits / a.cluster) * kDecodeRows * 2;
  const float* partial = a.partial + slot * (a.splits / a.cluster) * kDecodeRows * a.head_dim;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int row = warp; row < rows; row += kWarps) {  // at most kMaxSplits, two for each lane
    float2 part[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int s = lane + 32 * i;
      part[i] = s < active ? __ldcg(reinterpret_cast<const float2*>(stats) + s * kDecodeRows + row) : make_float2(-INFINITY, 0.0f);
    }
    const float max = warp_max(fmaxf(part[0].x, part[1].x));
    const float weight[2] = {exp2f(part[0].x - max), exp2f(part[1].x - max)};
    const float sum = warp_sum(weight[0] * part[0].y + weight[1] * part[1].y);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (lane + 32 * i < active) weights[(lane + 32 * i) * kDecodeRows + row] = weight[i] / sum;
    }
  }
  named_barrier(1, kThreads);
  const int units = a.head_dim / 4;
  for (int i = threadIdx.x; i < rows * units; i += kThreads) {
    const int row = i / units, dim = i % units * 4;
    float value[4] = {};
#pragma unroll 8
    for (int s = 0; s < active; ++s) {
      const float4 part = __ldcg(reinterpret_cast<const float4*>(partial + (static_cast<int64_t>(s) * kDecodeRows + row) * a.head_dim + dim));
      const float weight = weights[s * kDecodeRows + row];
      value[0] += weight * part.x, value[1] += weight * part.y, value[2] += weight * part.z, value[3] += weight * part.w;
    }
    store(out + row * a.head_dim + dim, value);
  }
}

// This block's share of the results of its cluster, whose blocks [0, active), kMost at most, have parts: to `out` when there are no others,
// else to the cluster's place among the parts.
template <int kMost, typename T, typename Shared>
__device__ void join_blocks(const Shared& shared, const AttentionArgs& a, int active, int rows, bool only_cluster, int64_t part, T* out) {
  const int units = a.head_dim / 4;
  for (int i = static_cast<int>(cluster_rank() * kThreads + threadIdx.x); i < rows * units; i += active * kThreads) {
    const int row = i / units, dim = i % units * 4;
    float2 stats[kMost];
    float4 sums[kMost];
#pragma unroll
    for (int b = 0; b < kMost; ++b) {
      const unsigned rank = static_cast<unsigned>(min(b, active - 1));
      stats[b] = load_of_block(&shared.stats[row], rank);
      sums[b] = load_of_block(reinterpret_cast<const float4*>(&shared.out[0][row][dim]), rank);
    }
    float max = -INFINITY, sum = 0, value[4] = {};
#pragma unroll
    for (int b = 0; b < kMost; ++b) max = fmaxf(max, stats[b].x);
#pragma unroll
    for (int b = 0; b < kMost; ++b) {
      const float weight = b < active ? exp2f(stats[b].x - max) : 0.0f;
      sum += weight * stats[b].y;
      value[0] += weight * sums[b].x, value[1] += weight * sums[b].y, value[2] += weight * sums[b].z, value[3] += weight * sums[b].w;
    }
    if (only_cluster) {
#pragma unroll
      for (float& v : value) v /= sum;
      store(out + row * a.head_dim + dim, value);
      continue;
    }
    const int64_t at = part * kDecodeRows + row;
    store(a.partial + at * a.head_dim + dim, value);
    if (dim == 0) reinterpret_cast<float2*>(a.stats)[at] = make_float2(max, sum);
  }
}

// This warp's part of tiles [begin, end), brought by the fifth warp.
template <typename T, int kDim, typename Shared>
__device__ void attend_bulk(Shared& shared, RowState<kDim>& state, const AttentionArgs& a, int begin, int end, int length,
                            const Visible (&visible)[2]) {
  const int in_tile = threadIdx.x / 32 * 16;
  commit_copies();
  wait_copies<0>();  // the queries
  named_barrier(1, kThreads);
  for (int index = 0; index < end - begin; ++index) {
    const int tile = begin + decltype(shared.ring)::tile_at(index, end - begin), stage = index % Shared::kStages;
    const int first = tile * kTileTokens + in_tile;
    shared.ring.wait_full(index);
    const bool masked = first < visible[0].first || first + 16 > length;
    if (first < length) {
      attend<T, kDim, 16, typename Shared::Tile>(state, shared.q, shared.tiles.keys[stage], shared.tiles.values[stage], in_tile, a, first,
                                                 visible, masked);
    }
    shared.ring.release(index);
  }
}

// The same with tiles that the four warps copy themselves.
template <typename T, typename KV, int kDim, typename Shared>
__device__ void attend_copying(Shared& shared, RowState<kDim>& state, const AttentionArgs& a, const int32_t* table, int kv_head,
                               int begin, int end, int length, const Visible (&visible)[2]) {
  const auto copy = [&](int tile) {
    const int stage = (tile - begin) % Shared::kStages;
    copy_tile<T, KV, kDim, kThreads>(shared.tiles.keys[stage], shared.tiles.values[stage], a, table, kv_head, tile * kTileTokens, length);
    commit_copies();
  };
  constexpr bool kTwo = Shared::kStages > 1;
  if constexpr (kTwo) copy(begin);
  const int in_tile = threadIdx.x / 32 * 16;
  for (int tile = begin; tile < end; ++tile) {
    if (!kTwo) copy(tile);
    if (kTwo && tile + 1 < end) {
      copy(tile + 1);
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    named_barrier(1, kThreads);
    const int stage = (tile - begin) % Shared::kStages, first = tile * kTileTokens + in_tile;
    const bool masked = first < visible[0].first || first + 16 > length;
    attend<T, kDim, 16, typename Shared::Tile>(state, shared.q, shared.tiles.keys[stage], shared.tiles.values[stage], in_tile, a, first,
                                               visible, masked);
    named_barrier(1, kThreads);
  }
}

template <int kRing>
constexpr int kAllThreads = kThreads + (kRing > 0 ? 32 : 0);

// What the next kernel asks for of its weights would come before keys and values that are asked for later. So it is let in when these
// are on their way: by a block of one tile at the previous kernel's end, else when its first tile is asked for. With many sequences
// there is no room for it yet.
template <int kRing>
constexpr bool kLetsInLate = kRing == kShallow;

template <typename T, typename KV, int kDim, int kRing>
__global__ void __launch_bounds__(kAllThreads<kRing>) decode_kernel(const AttentionArgs a) {
  constexpr bool kBulk = kRing > 0;
  extern __shared__ __align__(128) uint8_t raw[];
  auto& shared = *reinterpret_cast<DecodeShared<T, kDim, kRing>*>(raw);
  if constexpr (!kLetsInLate<kRing>) let_next_start();
  const int seq = blockIdx.z, kv_head = blockIdx.y % a.num_kv_heads, row_tile = blockIdx.y / a.num_kv_heads;
  const int token_row = a.query_start[seq], next_row = a.query_start[seq + 1], length = a.seq_lens[seq];
  if (next_row - token_row != 1) {  // prefill's, or empty
    wait_for_previous();  // or a launch without any work could be complete before the kernels that came before it
    return;
  }
  const int first_visible = a.window > 0 ? max(0, length - a.window) : 0;
  const int first_tile = first_visible / kTileTokens, tiles = (length + kTileTokens - 1) / kTileTokens - first_tile;
  const int parts = tiles <= kTilesOfBlock * a.cluster ? a.cluster : a.splits;
  const int active = min(tiles, parts), least = tiles / active, with_least = active - tiles % active;
  const int split = blockIdx.x;
  if (split >= active) return;
  // The last block is one with a tile more: the last tile is often a short one.
  const int begin = first_tile + split * least + max(0, split - with_least), end = begin + least + (split >= with_least ? 1 : 0);
  const int rows = min(kDecodeRows, a.group - row_tile * kDecodeRows);
  const int first_head = kv_head * a.group + row_tile * kDecodeRows;
  const int32_t* table = a.block_table + seq * a.table_stride;
  const bool at_first_tile = kLetsInLate<kRing> && end - begin > 1, at_previous_end = kLetsInLate<kRing> && end - begin == 1;
  const auto first_tile_is_asked_for = [&] {
    if (!at_first_tile) return;
    named_barrier(2, kAllThreads<kRing>);
    let_next_start();
  };

  if constexpr (kBulk) {
    if (threadIdx.x == 0) shared.ring.init();
    shared.ring.clear_tail(shared.tiles.values, a.head_dim, begin, end, length);
    __syncthreads();
    if (threadIdx.x >= kThreads) {
      shared.ring.template produce</*kLastEarly=*/true>(shared.tiles.keys, shared.tiles.values, a, table, kv_head, begin, end, length, length - 1,
                                                          first_tile_is_asked_for);
      if (at_previous_end) let_next_start();
      return;
    }
    first_tile_is_asked_for();
  }
  wait_for_previous();
  if (at_previous_end) let_next_start();
  load_queries<T, kDim>(shared.q, static_cast<const T*>(a.q) + token_row * a.q_stride + static_cast<int64_t>(first_head) * a.head_dim, rows,
                        a.head_dim);
  RowState<kDim> state;
  state.clear();
  const Visible visible[2] = {{first_visible, length - 1}, {first_visible, length - 1}};
  if constexpr (kBulk) attend_bulk<T>(shared, state, a, begin, end, length, visible);
  else attend_copying<T, KV>(shared, state, a, table, kv_head, begin, end, length, visible);
  share_states(shared, state, rows);

  T* out = static_cast<T*>(a.out) + token_row * a.out_stride + static_cast<int64_t>(first_head) * a.head_dim;
  const int64_t slot = static_cast<int64_t>(seq) * gridDim.y + blockIdx.y;
  const int units = a.head_dim / 4;
  for (int i = threadIdx.x; i < rows * units; i += kThreads) {
    const int row = i / units, dim = i % units * 4;
    Joined all = joined(shared, row, dim);
    if (active == 1) {
#pragma unroll
      for (float& v : all.out) v /= all.sum;
      store(out + row * a.head_dim + dim, all.out);
      continue;
    }
    store(&shared.out[0][row][dim], all.out);  // no other thread has read or will read these
    if (dim == 0) shared.stats[row] = make_float2(all.max, all.sum);
  }
  if (active == 1) return;
  // The blocks of a cluster beyond `active` have ended.
  const int cluster = split / a.cluster, clusters = (active + a.cluster - 1) / a.cluster;
  cluster_arrive();
  cluster_wait();
  const int here = min(a.cluster, active - cluster * a.cluster);
  const int64_t part = slot * (a.splits / a.cluster) + cluster;
  if (here <= 3) join_blocks<3>(shared, a, here, rows, clusters == 1, part, out);
  else join_blocks<kMaxCluster>(shared, a, here, rows, clusters == 1, part, out);
  cluster_arrive();  // has read the others
  if (clusters == 1) return cluster_wait();
  __threadfence();
  named_barrier(1, kThreads);
  if (threadIdx.x == 0) {
    shared.last = atomicAdd(&a.arrivals[slot], 1u) == static_cast<unsigned>(active - 1);
    if (shared.last) a.arrivals[slot] = 0;
    __threadfence();
  }
  named_barrier(1, kThreads);
  cluster_wait();
  if (shared.last) join_clusters(a, slot, clusters, rows, &shared.out[0][0][0], out);
}

// With the first of the rings that a block has room for.
template <typename T, typename KV, int kDim, int kRing, int... kSmaller>
void launch_decode(const Context& ctx, const AttentionArgs& args, dim3 grid) {
  constexpr size_t kBytes = sizeof(DecodeShared<T, kDim, kRing>);
  if constexpr (kBytes > kLeastSharedMemory) {
    if (kBytes > ctx.cuda->shared_memory()) return launch_decode<T, KV, kDim, kSmaller...>(ctx, args, grid);
  }
  launch_placed(ctx, {.cluster = static_cast<unsigned>(args.cluster)}, decode_kernel<T, KV, kDim, kRing>, grid, dim3(kAllThreads<kRing>), kBytes, args);
}

}  // namespace

void attention_decode(const Context& ctx, const AttentionArgs& args, int dim, DType activations, DType cache) {
  const int row_tiles = (args.group + kDecodeRows - 1) / kDecodeRows;
  const dim3 grid(static_cast<unsigned>(args.splits), static_cast<unsigned>(args.num_kv_heads * row_tiles),
                  static_cast<unsigned>(args.num_seqs));
  by_attention(dim, activations, cache, [&]<typename T, typename KV, int kDim>() {
    if constexpr (sizeof(KV) == 2 && kDim % 64 == 0) {
      if (takes_bulk(ctx, args, kDim)) {
        const bool shallow = int64_t{args.num_seqs} * args.num_kv_heads * row_tiles <= kShallowSlots;
        if (shallow) return launch_decode<T, KV, kDim, kShallow, kSingle>(ctx, args, grid);
        return launch_decode<T, KV, kDim, kDeep<kDim>, kShallow, kSingle>(ctx, args, grid);
      }
    }
    launch_decode<T, KV, kDim, kCopying, kCopyingOne>(ctx, args, grid);
  });
}

}  // namespace tutti::cuda
