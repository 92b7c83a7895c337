// Products with at most eight tokens: the weights' bytes are the cost. Persistent blocks; in each, one thread has the bulk
// copy engine fill a ring of shared memory with pieces of 16 weight rows, and eight warps multiply them with the tokens
// on the matrix units (16 rows x 8 tokens an instruction). The ring is filled before the previous kernel's results are
// waited for, so that the memory stays busy between kernels. Norms before and additions, gates, rotation and cache writes
// after the product are done in place (small_tokens.cuh, small_write.cuh): each spares a kernel.
//
//   ring stage: 8 boxes of 16 rows x 128 bytes, swizzled by the copy engine; a warp takes one box. In a product of pairs
//               the first 8 rows are of one half (the gate, the first half of a head), the others of the other
//   slices:     k may be cut over several blocks; the last one to arrive adds the parts, always in the same order
//
// An instruction wants elements {2m, 2m + 1, 2m + 8, 2m + 9} of k from member m of a lane group. A sum over k has any
// order, so member m gives 16 consecutive bytes to several instructions instead: all loads are 16 bytes wide.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/dispatch.h"
#include "ops/cuda/small_product.cuh"
#include "ops/cuda/small_tokens.cuh"
#include "ops/cuda/small_write.cuh"

namespace tutti::cuda {
namespace {

constexpr int kRows = 16;                        // weight rows of a tile
constexpr int kWarps = 8;                        // that multiply
constexpr int kConsumers = kWarps * 32;
constexpr int kThreads = kConsumers + 32;
constexpr int kBoxBytes = 128;                   // of a row
constexpr int kPieceBytes = kWarps * kBoxBytes;  // of a row, in a stage
constexpr int kMaxStages = 8;
constexpr int kStageBytes = kRows * kPieceBytes;
constexpr int kSums = kRows * static_cast<int>(kSmallTokens);  // of a tile

constexpr int kMinStages = 4;
constexpr size_t kReserved = 1024;             // shared memory that each block costs beside its own
constexpr size_t kForNext = size_t{40} << 10;  // and what decode attention wants, the kernel that is slow to start
constexpr double kJoinCost = 5.0;              // of adding slices: in pieces of a tile, measured on an H200

struct SmallParams {
  SmallTokens tokens;
  SmallOutput output;
  int row_bytes;
  const float* block_scales;  // FP8 with a scale for each block of weights
  int tiles;
  int slices;
  int pieces;  // of a row in one slice
  int stages;  // of the ring
  bool fresh;
  float* partial;      // [tiles, slices, kSums]
  unsigned* arrivals;  // [tiles]
};

struct alignas(1024) SharedHead {  // the ring behind it starts where a swizzle pattern does
  Barrier full[kMaxStages];
  Barrier empty[kMaxStages];
  unsigned last;
  TokenScratch<kWarps> tokens;
  alignas(16) float sums[2][kWarps][4][32];
};

int x_row_stride(int pieces, int widen, int64_t tokens) { return pieces * kPieceBytes * widen + pad_of(widen, static_cast<int>(tokens)); }

// Where in a box the row of a lane group lies, and eight further down its second one. Neighbouring groups take rows 4
// apart: their 16 bytes then lie in different banks.
__device__ __forceinline__ int row_in_box(int group) { return group / 2 + group % 2 * 4; }

// The pieces of a slice.
struct Pieces {
  int begin;
  int end;
};
__device__ __forceinline__ Pieces pieces_of(const SmallParams& p, int slice) {
  return {slice * p.pieces, min((slice + 1) * p.pieces, (p.row_bytes + kPieceBytes - 1) / kPieceBytes)};
}

// Where a tile's rows are: the first one, as weights' rows and as the copy engine counts them (rows of a half, half).
struct TilePlace {
  int row;
  int in_half;
  int half;
};
template <ProductKind kKind>
__device__ __forceinline__ TilePlace place_of(const SmallOutput& o, int tile) {
  if constexpr (kKind == ProductKind::kPlain) return {tile * kRows, tile * kRows, 0};
  if constexpr (kKind == ProductKind::kGated) return {tile * (kRows / 2), tile * (kRows / 2), 0};
  const int half = o.rope.head_dim / 2, head = tile / (half / (kRows / 2)), in_half = tile % (half / (kRows / 2)) * (kRows / 2);
  return {head * o.rope.head_dim + in_half, in_half, 2 * head};
}

template <ProductKind kKind>
__device__ void produce(const SmallParams& p, const CUtensorMap* map, SharedHead* head, uint8_t* ring, int slice, int first_tile,
                        int tile_step) {
  const uint64_t policy = evict_first();
  const Pieces pieces = pieces_of(p, slice);
  if (p.fresh) wait_for_previous();
  RingPosition at;
  for (int tile = first_tile; tile < p.tiles; tile += tile_step) {
    const TilePlace place = place_of<kKind>(p.output, tile);
    for (int piece = pieces.begin; piece < pieces.end; ++piece, at.advance(p.stages)) {
      const int column = piece * kPieceBytes;
      const int boxes = min(kWarps, (p.row_bytes - column + kBoxBytes - 1) / kBoxBytes);
      wait_phase(&head->empty[at.stage], at.parity ^ 1);
      arrive_expect(&head->full[at.stage], static_cast<uint32_t>(boxes * kRows * kBoxBytes));
      uint8_t* to = ring + at.stage * kStageBytes;
      for (int box = 0; box < boxes; ++box) {
        tensor_copy(to + box * (kRows * kBoxBytes), map, column + box * kBoxBytes, place.in_half, place.half, &head->full[at.stage], policy);
      }
    }
  }
}

// This warp's share of a tile's sums.
template <typename T, ProductKind kKind>
__device__ __forceinline__ void multiply(const SmallParams& p, SharedHead* head, const uint8_t* ring, const uint8_t* xs, int x_stride,
                                         int slice, int row, RingPosition& next, float (&acc)[2][4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  const int in_box = row_in_box(group);
  const Pieces pieces = pieces_of(p, slice);
  for (int piece = pieces.begin; piece < pieces.end; ++piece, next.advance(p.stages)) {
    const int column = piece * kPieceBytes + warp * kBoxBytes;
    const uint8_t* token = xs + group * x_stride + ((piece - pieces.begin) * kPieceBytes + warp * kBoxBytes) * kWiden<T>;
    uint4 x[2][kWiden<T>];
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      // Beyond a row's end the copy engine gives zeros; the tokens' bytes there were never written.
      const int at = (step * 4 + member) * 16;
      const bool valid = group < p.tokens.count && column + at < p.row_bytes;
#pragma unroll
      for (int i = 0; i < kWiden<T>; ++i) {
        x[step][i] = valid ? load_shared(token + at * kWiden<T> + 16 * i) : make_uint4(0, 0, 0, 0);
      }
    }
    float scale[2] = {1.0f, 1.0f};  // of the first eight rows and the others
    if (sizeof(T) == 1 && p.block_scales != nullptr && column < p.row_bytes) {
      const int blocks = (p.row_bytes + kBoxBytes - 1) / kBoxBytes;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int block = (row + i * partner<kKind>(p.output)) / static_cast<int>(kScaleBlock);
        scale[i] = p.block_scales[block * blocks + column / kBoxBytes];
      }
    }
    wait_phase(&head->full[next.stage], next.parity);
    if (column < p.row_bytes) {
      const uint8_t* box = ring + next.stage * kStageBytes + warp * (kRows * kBoxBytes) + in_box * kBoxBytes;
      float part[2][4] = {};
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const int at = ((step * 4 + member) ^ in_box) * 16;
        multiply_unit<T>(sizeof(T) == 1 ? part[step] : acc[step], load_shared(box + at), load_shared(box + 8 * kBoxBytes + at), x[step]);
      }
      if constexpr (sizeof(T) == 1) {
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[0][i] += scale[i / 2] * (part[0][i] + part[1][i]);
      }
    }
    __syncwarp();
    if (lane == 0) arrive(&head->empty[next.stage]);
  }
}

// Adds the slices' sums of a tile. True in the block that arrived last, which then has the whole sums.
template <int kEach>
__device__ bool join_slices(const SmallParams& p, SharedHead* head, int tile, int slice, float (&sum)[kEach]) {
  constexpr int kSummers = kSums / kEach;
  float* mine = p.partial + static_cast<int64_t>(tile) * p.slices * kSums + threadIdx.x;
  if (threadIdx.x < kSummers) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) mine[slice * kSums + i * kSummers] = sum[i];
    __threadfence();
  }
  named_barrier(1, kConsumers);
  if (threadIdx.x == 0) {
    head->last = atomicAdd(&p.arrivals[tile], 1u) == static_cast<unsigned>(p.slices - 1);
    if (head->last) p.arrivals[tile] = 0;
    __threadfence();
  }
  named_barrier(1, kConsumers);
  if (!head->last) return false;
  if (threadIdx.x < kSummers) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      sum[i] = 0;
      for (int s = 0; s < p.slices; ++s) sum[i] += __ldcg(mine + s * kSums + i * kSummers);
    }
  }
  return true;
}

template <typename T, typename X, typename Out, ProductKind kKind>
__global__ void __launch_bounds__(kThreads, 2) small_kernel(const SmallParams p, const __grid_constant__ CUtensorMap map) {
  constexpr int kEach = kSumsOf<kKind>, kSummers = kSums / kEach;
  constexpr bool kScaled = sizeof(T) == 1;
  extern __shared__ __align__(1024) uint8_t shared[];
  auto* head = reinterpret_cast<SharedHead*>(shared);
  uint8_t* ring = shared + sizeof(SharedHead);
  uint8_t* xs = ring + p.stages * kStageBytes;
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.stages; ++s) {
      init_barrier(&head->full[s], 1);
      init_barrier(&head->empty[s], kWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  let_next_start();
  const int slice = blockIdx.x % p.slices, first_tile = blockIdx.x / p.slices, tile_step = gridDim.x / p.slices;
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) produce<kKind>(p, &map, head, ring, slice, first_tile, tile_step);
    return;
  }
  const int x_stride = p.pieces * kPieceBytes * kWiden<T> + pad_of(kWiden<T>, p.tokens.count);
  const int first = slice * p.pieces * (kPieceBytes / static_cast<int>(sizeof(T)));
  const int count = min(p.pieces * (kPieceBytes / static_cast<int>(sizeof(T))), p.tokens.k - first);
  {
    NormWeights<kConsumers> weights;
    weights.expect(p.tokens, first, count);
    wait_for_previous();
    stage_tokens<X, kScaled>(p.tokens, weights, head->tokens, xs, x_stride, first, count);
  }
  // Of the matrix instruction's result, value `warp` of the lane, and the one two further.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int token = 2 * (lane % 4) + warp % 2, in_tile = (kEach == 1 ? warp / 2 * 8 : 0) + row_in_box(lane / 4);
  const int rows = kKind == ProductKind::kGated ? p.output.rows / 2 : p.output.rows;
  RingPosition next;
  int buffer = 0;
  for (int tile = first_tile; tile < p.tiles; tile += tile_step, buffer ^= 1) {
    const TilePlace place = place_of<kKind>(p.output, tile);
    const int row = place.row + in_tile;
    const bool writes = threadIdx.x < kSummers && token < p.tokens.count && row < rows;
    Finish<X, Out, kKind> finish;
    if (writes) finish.expect(p.output, token, row);
    float acc[2][4] = {};
    multiply<T, kKind>(p, head, ring, xs, x_stride, slice, place.row, next, acc);
#pragma unroll
    for (int i = 0; i < 4; ++i) head->sums[buffer][warp][i][lane] = acc[0][i] + acc[1][i];
    named_barrier(1, kConsumers);  // two buffers: the other one was read before this point
    float sum[kEach] = {};
    if (threadIdx.x < kSummers) {
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) sum[i] += head->sums[buffer][w][i * 2 + warp][lane];
      }
      if (kScaled && token < p.tokens.count) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) sum[i] *= head->tokens.scales[token];  // of this slice
      }
    }
    if (p.slices > 1 && !join_slices<kEach>(p, head, tile, slice, sum)) continue;
    if (writes) finish.write(p.output, token, row, sum);
  }
}

size_t shared_bytes(const LinearCall& call, int pieces, int stages) {
  const int widen = call.dtype == DType::kF8E4M3 ? kWiden<fp8> : 1;
  return sizeof(SharedHead) + static_cast<size_t>(stages) * kStageBytes + static_cast<size_t>(call.num_tokens) * static_cast<size_t>(x_row_stride(pieces, widen, call.num_tokens));
}

// How a product is spread: into as many slices of k as the tokens' part needs to fit, or as leave few blocks idle. Two
// blocks a multiprocessor, where the tokens leave room for two rings: eight warps alone do not keep up with the memory.
struct Plan {
  int slices = 1;
  int pieces = 0;
  int stages = 0;
  int blocks = 0;
};

constexpr int kMostSlices = 16;

int pieces_of(const LinearCall& call) {
  return static_cast<int>((static_cast<int64_t>(dtype_bytes(call.dtype, call.k)) + kPieceBytes - 1) / kPieceBytes);
}

Plan plan(const Context& ctx, const LinearCall& call, int tiles, int all_pieces) {
  const size_t limit = ctx.cuda->shared_memory();
  Plan best;
  double best_cost = 0;
  for (int slices = 1; slices <= std::min(all_pieces, kMostSlices); ++slices) {
    const int pieces = (all_pieces + slices - 1) / slices;
    if (shared_bytes(call, pieces, kMinStages) > limit) continue;
    const int used = (all_pieces + pieces - 1) / pieces;  // slices that have something to do
    const int columns = std::max(1, ctx.cuda->num_sms() / used);
    const int rounds = (tiles + columns - 1) / columns;
    const double cost = rounds * (pieces + (used > 1 ? kJoinCost : 0.0));
    if (best.pieces == 0 || cost < best_cost) best = {used, pieces, kMinStages, 1}, best_cost = cost;
  }
  if (best.pieces == 0) return best;
  if (shared_bytes(call, best.pieces, kMinStages) + kReserved <= (limit + kReserved) / 2) {
    best.blocks = 2;
  } else {
    while (best.stages < kMaxStages && shared_bytes(call, best.pieces, best.stages + 1) + kForNext <= limit) ++best.stages;
  }
  best.blocks = std::max(1, std::min(tiles, best.blocks * ctx.cuda->num_sms() / best.slices)) * best.slices;
  return best;
}

template <typename T, typename X>
void launch_small(const Context& ctx, const LinearCall& call, const SmallParams& p, const CUtensorMap& map, unsigned grid) {
  const size_t bytes = shared_bytes(call, p.pieces, p.stages);
  const auto go = [&](auto kernel) { launch(ctx, kernel, dim3(grid), dim3(kThreads), bytes, p, map); };
  if (call.gated) go(small_kernel<T, X, X, ProductKind::kGated>);
  else if (call.rope != nullptr) go(small_kernel<T, X, X, ProductKind::kRotated>);
  else if (call.out_type == DType::kF32) go(small_kernel<T, X, float, ProductKind::kPlain>);
  else go(small_kernel<T, X, X, ProductKind::kPlain>);
}

}  // namespace

bool linear_small_can(const Context& ctx, const LinearCall& call) {
  if (ctx.cuda->capability() < 90 || call.num_tokens > kSmallTokens || call.x_type == DType::kF8E4M3) return false;
  if (call.dtype != DType::kF8E4M3 && call.dtype != call.x_type) return false;
  const bool plain = !call.gated && call.rope == nullptr;
  if (call.out_type != call.x_type && !(plain && !call.add && call.out_type == DType::kF32)) return false;
  if (call.rope != nullptr && call.rope->head_dim % kRows != 0) return false;
  if (call.block_scaled && call.gated && call.rows / 2 % kScaleBlock != 0) return false;
  const auto element = static_cast<int64_t>(dtype_bytes(call.dtype, 1));
  const auto bits = reinterpret_cast<uintptr_t>(call.w) | reinterpret_cast<uintptr_t>(call.x) |
                    reinterpret_cast<uintptr_t>(call.norm_weight) | static_cast<uintptr_t>(call.k * element) |
                    static_cast<uintptr_t>(call.k * 2) | static_cast<uintptr_t>(call.x_stride * 2);
  if (bits % 16 != 0 || call.rows >= (int64_t{1} << 30)) return false;
  const int fewest = (pieces_of(call) + kMostSlices - 1) / kMostSlices;  // of a slice
  return shared_bytes(call, fewest, kMinStages) <= ctx.cuda->shared_memory();
}

void linear_small(const Context& ctx, const LinearCall& call) {
  SmallParams p{};
  p.tokens = {call.x, call.x_stride, static_cast<int>(call.num_tokens), static_cast<int>(call.k), call.norm_weight, call.eps};
  p.output = {call.bias, call.block_scaled ? nullptr : call.w_scales, call.out, call.out_stride, static_cast<int>(call.rows), call.add,
              call.rope != nullptr ? *call.rope : RopeWrite{}};
  p.row_bytes = static_cast<int>(dtype_bytes(call.dtype, call.k));
  p.block_scales = call.block_scaled ? call.w_scales : nullptr;
  const bool pairs = call.gated || call.rope != nullptr;
  const int group = call.gated ? p.output.rows / 2 : call.rope != nullptr ? call.rope->head_dim / 2 : p.output.rows;
  p.tiles = pairs ? (p.output.rows / 2 + kRows / 2 - 1) / (kRows / 2) : (p.output.rows + kRows - 1) / kRows;
  const Plan how = plan(ctx, call, p.tiles, pieces_of(call));
  CHECK_GE(how.pieces, 1);
  p.slices = how.slices;
  p.pieces = how.pieces;
  p.stages = how.stages;
  p.fresh = call.fresh;
  p.arrivals = ctx.cuda->counters();
  const Scratch scratch(ctx);
  if (p.slices > 1) p.partial = scratch.floats(static_cast<int64_t>(p.tiles) * p.slices * kSums);
  if (p.slices > 1) CHECK_LE(p.tiles, CudaContext::kCounters);
  const CUtensorMap map = ctx.cuda->tensor_map(call.w, p.output.rows / group, group, p.row_bytes, pairs ? 2 : 1, pairs ? kRows / 2 : kRows);
  by_activation(call.x_type, [&](auto type) {
    using X = typename decltype(type)::type;
    if (call.dtype == DType::kF8E4M3) launch_small<fp8, X>(ctx, call, p, map, static_cast<unsigned>(how.blocks));
    else launch_small<X, X>(ctx, call, p, map, static_cast<unsigned>(how.blocks));
  });
}

}  // namespace tutti::cuda
