// Attention of sequences with several query rows. A block takes a tile of rows of one sequence and key head, where a row
// is one query head of one token (the heads of a group lie side by side: they share keys); each warp has 16 of them. One
// more warp brings the tiles through the bulk copy engine, so that no warp waits for another; where that cannot be (as in
// attention_decode.cu) the warps copy them together.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/attention.cuh"

namespace tutti::cuda {
namespace {

// kSmall: within kLeastSharedMemory.
template <int kDim, bool kSmall>
constexpr int kManyWarps = kSmall ? (kDim <= 192 ? 4 : 2) : kDim <= 128 ? 8 : 4;
template <int kDim, bool kBulk, bool kSmall>
constexpr int kTilesAtOnce = kSmall ? (kDim <= 128 ? 2 : 1) : kBulk && kDim <= 128 ? 3 : 2;

template <typename T, int kDim, int kWarps, bool kBulk, int kStages>
struct PrefillShared {
  using Tile = TileLayout<kDim, kBulk>;
  T q[kWarps * 16 * kTileStride<kDim>];
  alignas(128) T keys[kStages][Tile::kElements];
  T values[kStages][Tile::kElements];
  TileRing<kStages, kWarps> ring;
};

// Sequences with this many rows at most are another launch's where decode has no kernel of its own: blocks of one warp, in
// which a row's bits come out as they do in those of several.
constexpr int kFewRows = 16;

// Tiles of all sequences in one line: those of sequence s start at query_start[s] * group / rows + s, which leaves room
// for a partly filled one each. Returns the sequence that owns `tile`.
__device__ int sequence_of(const AttentionArgs& a, int tile, int rows) {
  int low = 0, high = a.num_seqs - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (a.query_start[middle] * a.group / rows + middle <= tile) low = middle;
    else high = middle - 1;
  }
  return low;
}

template <typename T, typename KV, int kDim, int kWarps, bool kBulk, int kStages>
__global__ void __launch_bounds__(kWarps * 32 + (kBulk ? 32 : 0)) prefill_kernel(const AttentionArgs a) {
  constexpr int kThreads = kWarps * 32, kRows = kWarps * 16, kUnits = kDim / 8;
  constexpr bool kFew = kRows <= kFewRows;
  extern __shared__ __align__(128) uint8_t raw[];
  auto& shared = *reinterpret_cast<PrefillShared<T, kDim, kWarps, kBulk, kStages>*>(raw);
  using Tile = TileLayout<kDim, kBulk>;
  let_next_start();
  const int seq = kFew ? static_cast<int>(blockIdx.x) : sequence_of(a, blockIdx.x, kRows);
  const int token_begin = a.query_start[seq], query_len = a.query_start[seq + 1] - token_begin;
  const bool few = a.no_decode ? query_len * a.group <= kFewRows : query_len <= 1;
  if (query_len == 0 || few != kFew) {  // the other launch's, or decode's
    wait_for_previous();  // as in attention_decode.cu
    return;
  }
  const int tile_in_seq = kFew ? 0 : blockIdx.x - (token_begin * a.group / kRows + seq);
  // The last tiles see most keys: they start first.
  const int row_tiles = (query_len * a.group + kRows - 1) / kRows;
  if (tile_in_seq >= row_tiles) return;
  const int row_begin = (row_tiles - 1 - tile_in_seq) * kRows;
  const int row_end = min(row_begin + kRows, query_len * a.group);
  const int kv_head = blockIdx.y;
  const int length = a.seq_lens[seq], context = length - query_len;
  const int32_t* table = a.block_table + seq * a.table_stride;

  const int first_position = context + row_begin / a.group, last_position = context + (row_end - 1) / a.group;
  const int first_seen = a.window > 0 ? max(0, first_position - a.window + 1) : 0;
  const int begin = first_seen / kTileTokens, end = last_position / kTileTokens + 1;
  if constexpr (kBulk) {
    if (threadIdx.x == 0) shared.ring.init();
    shared.ring.clear_tail(shared.values, a.head_dim, begin, end, length);
    __syncthreads();
    if (threadIdx.x >= kThreads) {
      shared.ring.template produce</*kLastEarly=*/false>(shared.keys, shared.values, a, table, kv_head, begin, end, length, context, [] {});
      return;
    }
  }
  wait_for_previous();

  // Row r: token r / group, head kv_head * group + r % group.
  const auto offset = [&](int row, int64_t stride) {
    return (token_begin + row / a.group) * stride + static_cast<int64_t>(kv_head * a.group + row % a.group) * a.head_dim;
  };
  const T* q = static_cast<const T*>(a.q);
  for (int i = threadIdx.x; i < kRows * kUnits; i += kThreads) {
    const int row = row_begin + i / kUnits, dim = i % kUnits * 8;
    const bool valid = row < row_end && dim < a.head_dim;
    copy16_async(shared.q + i / kUnits * kTileStride<kDim> + dim, valid ? q + offset(row, a.q_stride) + dim : q, valid);
  }
  const auto copy = [&](int tile) {
    const int stage = (tile - begin) % kStages;
    copy_tile<T, KV, kDim, kThreads>(shared.keys[stage], shared.values[stage], a, table, kv_head, tile * kTileTokens, length);
    commit_copies();
  };
  if constexpr (!kBulk && kStages > 1) copy(begin);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  const auto visible_to = [&](int row) {
    const int position = context + min(row, row_end - 1) / a.group;
    return Visible{a.window > 0 ? max(0, position - a.window + 1) : 0, position};
  };
  const int my_row = row_begin + warp * 16 + group;
  const Visible visible[2] = {visible_to(my_row), visible_to(my_row + 8)};
  const Visible warp_first = visible_to(row_begin + warp * 16), warp_last = visible_to(row_begin + warp * 16 + 15);
  RowState<kDim> state;
  state.clear();
  if constexpr (kBulk) {
    commit_copies();
    wait_copies<0>();
    named_barrier(1, kThreads);  // the queries are there
  }
  for (int tile = begin; tile < end; ++tile) {
    const int index = tile - begin, stage = index % kStages;
    if constexpr (kBulk) {
      shared.ring.wait_full(index);
    } else if constexpr (kStages == 1) {
      copy(tile);
      wait_copies<0>();
      __syncthreads();
    } else {
      if (tile + 1 < end) {
        copy(tile + 1);
        wait_copies<1>();
      } else {
        wait_copies<0>();
      }
      __syncthreads();
    }
    const int first = tile * kTileTokens, last = first + kTileTokens - 1;
    if (first <= warp_last.last && last >= warp_first.first && row_begin + warp * 16 < row_end) {
      const bool masked = last > warp_first.last || first < warp_last.first;
      attend<T, kDim, kTileTokens, Tile>(state, shared.q + warp * 16 * kTileStride<kDim>, shared.keys[stage], shared.values[stage], 0, a,
                                         first, visible, masked);
    }
    if constexpr (kBulk) shared.ring.release(index);
    else __syncthreads();
  }
  state.finish();
  T* out = static_cast<T*>(a.out);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = my_row + 8 * h;
    if (row >= row_end) continue;
    T* to = out + offset(row, a.out_stride) + member * 2;
    const float factor = 1.0f / state.sum[h];
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      if (d * 8 < a.head_dim) {
        *reinterpret_cast<uint32_t*>(to + d * 8) = pack2<T>(state.out[d][2 * h] * factor, state.out[d][2 * h + 1] * factor);
      }
    }
  }
}

}  // namespace

void attention_prefill(const Context& ctx, const AttentionArgs& args, int64_t num_tokens, int max_query_len, int dim, DType activations,
                       DType cache) {
  const bool has_many = !args.no_decode || max_query_len * args.group > kFewRows;
  by_attention(dim, activations, cache, [&]<typename T, typename KV, int kDim>() {
    const auto go = [&]<int kWarps, bool kBulk, int kStages>(int64_t blocks) {
      launch(ctx, prefill_kernel<T, KV, kDim, kWarps, kBulk, kStages>, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(args.num_kv_heads)),
             dim3(kWarps * 32 + (kBulk ? 32 : 0)), sizeof(PrefillShared<T, kDim, kWarps, kBulk, kStages>), args);
    };
    const auto launches = [&]<bool kBulk, bool kSmall>() {
      constexpr int kMany = kManyWarps<kDim, kSmall>, kStages = kTilesAtOnce<kDim, kBulk, kSmall>;
      if (has_many) go.template operator()<kMany, kBulk, kStages>(num_tokens * args.group / (kMany * 16) + args.num_seqs);
      if (args.no_decode) go.template operator()<1, kBulk, kStages>(args.num_seqs);
    };
    const auto sized = [&]<bool kBulk>() {
      constexpr size_t kLarge = sizeof(PrefillShared<T, kDim, kManyWarps<kDim, false>, kBulk, kTilesAtOnce<kDim, kBulk, false>>);
      if constexpr (kLarge > kLeastSharedMemory) {
        static_assert(sizeof(PrefillShared<T, kDim, kManyWarps<kDim, true>, kBulk, kTilesAtOnce<kDim, kBulk, true>>) <= kLeastSharedMemory);
        if (kLarge > ctx.cuda->shared_memory()) return launches.template operator()<kBulk, true>();
      }
      launches.template operator()<kBulk, false>();
    };
    if constexpr (sizeof(KV) == 2 && kDim % 64 == 0) {
      if (takes_bulk(ctx, args, kDim)) return sized.template operator()<true>();
    }
    sized.template operator()<false>();
  });
}

}  // namespace tutti::cuda
