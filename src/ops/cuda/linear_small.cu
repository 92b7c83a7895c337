// Products with at most eight tokens: the weights' bytes are the cost. Persistent blocks; in each, one thread has the bulk
// copy engine fill a ring of shared memory with pieces of 16 weight rows, and eight warps multiply them with the tokens
// on the matrix units (16 rows x 8 tokens an instruction). The ring is filled before the previous kernel's results are
// waited for, so that the memory stays busy between kernels.
//
//   ring stage: 8 boxes of 16 rows x 128 bytes, swizzled by the copy engine; a warp takes one box. A gated product has a
//               stage of the gate's rows, then one of the up projection's
//   slices:     k may be cut over several blocks; the last one to arrive adds the parts, always in the same order
//
// An instruction wants elements {2m, 2m + 1, 2m + 8, 2m + 9} of k from member m of a lane group. A sum over k has any
// order, so member m gives 16 consecutive bytes to two instructions instead: all loads are 16 bytes wide.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/bulk.cuh"
#include "ops/cuda/dispatch.h"
#include "ops/cuda/kernels.h"

namespace tutti::cuda {
namespace {

constexpr int kRows = 16;                        // weight rows of a tile
constexpr int kWarps = 8;                        // that multiply
constexpr int kConsumers = kWarps * 32;
constexpr int kThreads = kConsumers + 32;
constexpr int kBoxBytes = 128;                   // of a row
constexpr int kPieceBytes = kWarps * kBoxBytes;  // of a row, in a stage
constexpr int kPad = 64;                         // keeps the tokens' rows in different banks
constexpr int kMaxStages = 8;
constexpr int kStageBytes = kRows * kPieceBytes;
constexpr int kSums = kRows * static_cast<int>(kSmallTokens);  // of a tile and half

constexpr int kMinStages = 4;
constexpr size_t kReserved = 1024;  // shared memory that each block costs beside its own
constexpr double kJoinCost = 5.0;  // of adding slices: in pieces of a tile, measured on an H200

struct SmallParams {
  int row_bytes;
  int rows;
  const uint8_t* x;
  int64_t x_stride_bytes;
  int tokens;
  const float* bias;
  const float* w_scales;  // of each row, FP8
  const float* x_scales;  // of each token, FP8
  void* out;
  int64_t out_stride;
  int tiles;
  int slices;
  int pieces;  // of a row in one slice
  int stages;  // of the ring
  float* partial;      // [tiles, slices, halves, kSums]
  unsigned* arrivals;  // [tiles]
};

struct alignas(1024) SharedHead {  // the ring behind it starts where a swizzle pattern does
  Barrier full[kMaxStages];
  Barrier empty[kMaxStages];
  unsigned last;
  alignas(16) float sums[2][kWarps][8][32];
};

int x_row_stride(int pieces) { return pieces * kPieceBytes + kPad; }

__device__ __forceinline__ uint4 load_shared(const uint8_t* p) { return *reinterpret_cast<const uint4*>(p); }

// A gated product has two halves: the gate's rows, and as many of the up projection.
template <bool kGated>
constexpr int kHalves = kGated ? 2 : 1;

// Where in a box the row of a lane group lies, and eight further down its second one. Neighbouring groups take rows 4
// apart: their 16 bytes then lie in different banks.
__device__ __forceinline__ int row_in_box(int group) { return group / 2 + group % 2 * 4; }

template <bool kGated>
__device__ void produce(const SmallParams& p, const CUtensorMap* map, SharedHead* head, uint8_t* ring, int slice, int first_tile,
                        int tile_step) {
  const uint64_t policy = evict_first();
  const int all_pieces = (p.row_bytes + kPieceBytes - 1) / kPieceBytes;
  const int begin = slice * p.pieces, end = min(begin + p.pieces, all_pieces);
  RingPosition at;
  for (int tile = first_tile; tile < p.tiles; tile += tile_step) {
    for (int piece = begin; piece < end; ++piece) {
      const int boxes = min(kWarps, (p.row_bytes - piece * kPieceBytes + kBoxBytes - 1) / kBoxBytes);
      for (int half = 0; half < kHalves<kGated>; ++half, at.advance(p.stages)) {
        wait_phase(&head->empty[at.stage], at.parity ^ 1);
        arrive_expect(&head->full[at.stage], static_cast<uint32_t>(boxes * kRows * kBoxBytes));
        uint8_t* to = ring + at.stage * kStageBytes;
        for (int box = 0; box < boxes; ++box, to += kRows * kBoxBytes) {
          tensor_copy(to, map, piece * kPieceBytes + box * kBoxBytes, half * (p.rows / 2) + tile * kRows, &head->full[at.stage],
                      policy);
        }
      }
    }
  }
}

// The slice's part of every token, side by side in shared memory.
__device__ void stage_tokens(const SmallParams& p, uint8_t* xs, int x_stride, int slice) {
  const int begin = slice * p.pieces * kPieceBytes;
  const int bytes = min(p.pieces * kPieceBytes, p.row_bytes - begin);
  const int units = bytes / 16;
  for (int i = threadIdx.x; i < units * p.tokens; i += kConsumers) {
    const int token = i / units, at = i % units * 16;
    *reinterpret_cast<uint4*>(xs + token * x_stride + at) =
        *reinterpret_cast<const uint4*>(p.x + token * p.x_stride_bytes + begin + at);
  }
  named_barrier(1, kConsumers);
}

// This warp's share of a tile's sums, by half.
template <typename T, bool kGated>
__device__ __forceinline__ void multiply(const SmallParams& p, SharedHead* head, const uint8_t* ring, const uint8_t* xs, int x_stride,
                                         int slice, RingPosition& next, float (&acc)[kHalves<kGated>][2][4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  const int in_box = row_in_box(group);
  const int all_pieces = (p.row_bytes + kPieceBytes - 1) / kPieceBytes;
  const int begin = slice * p.pieces, end = min(begin + p.pieces, all_pieces);
  for (int piece = begin; piece < end; ++piece) {
    const int column = piece * kPieceBytes + warp * kBoxBytes;
    const uint8_t* token = xs + group * x_stride + (piece - begin) * kPieceBytes + warp * kBoxBytes;
    uint4 x[2];
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      // Beyond a row's end the copy engine gives zeros; the tokens' bytes there were never written.
      const int at = (step * 4 + member) * 16;
      x[step] = group < p.tokens && column + at < p.row_bytes ? load_shared(token + at) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int half = 0; half < kHalves<kGated>; ++half, next.advance(p.stages)) {
      wait_phase(&head->full[next.stage], next.parity);
      if (column < p.row_bytes) {
        const uint8_t* box = ring + next.stage * kStageBytes + warp * (kRows * kBoxBytes) + in_box * kBoxBytes;
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          const int at = ((step * 4 + member) ^ in_box) * 16;
          const uint4 upper = load_shared(box + at), lower = load_shared(box + 8 * kBoxBytes + at);
          mma<T>(acc[half][step], upper.x, lower.x, upper.y, lower.y, x[step].x, x[step].y);
          mma<T>(acc[half][step], upper.z, lower.z, upper.w, lower.w, x[step].z, x[step].w);
        }
      }
      __syncwarp();
      if (lane == 0) arrive(&head->empty[next.stage]);
    }
  }
}

// Adds the slices' sums of a tile, `kSums` threads with one sum of each half. True in the block that arrived last, which
// then has the whole sums.
template <bool kGated>
__device__ bool join_slices(const SmallParams& p, SharedHead* head, int tile, int slice, float (&sum)[kHalves<kGated>]) {
  float* mine = p.partial + static_cast<int64_t>(tile) * p.slices * kHalves<kGated> * kSums + threadIdx.x;
  if (threadIdx.x < kSums) {
#pragma unroll
    for (int half = 0; half < kHalves<kGated>; ++half) mine[(slice * kHalves<kGated> + half) * kSums] = sum[half];
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
  if (threadIdx.x < kSums) {
#pragma unroll
    for (int half = 0; half < kHalves<kGated>; ++half) {
      sum[half] = 0;
      for (int s = 0; s < p.slices; ++s) sum[half] += __ldcg(mine + (s * kHalves<kGated> + half) * kSums);
    }
  }
  return true;
}

template <typename Out, bool kGated>
__device__ void write_tile(const SmallParams& p, int tile, const float (&sum)[kHalves<kGated>]) {
  const int lane = threadIdx.x % 32, which = threadIdx.x / 32;  // as in the matrix instruction's result
  const int token = 2 * (lane % 4) + which % 2, feature = tile * kRows + which / 2 * 8 + row_in_box(lane / 4);
  const int features = p.rows / kHalves<kGated>;
  if (token >= p.tokens || feature >= features) return;
  const auto finish = [&](float value, int row) {
    if (p.w_scales != nullptr) value *= p.w_scales[row] * p.x_scales[token];
    return p.bias == nullptr ? value : value + p.bias[row];
  };
  float value = finish(sum[0], feature);
  if constexpr (kGated) value = silu(value) * finish(sum[1], features + feature);
  static_cast<Out*>(p.out)[token * p.out_stride + feature] = from_float<Out>(value);
}

template <typename T, typename Out, bool kGated>
__global__ void __launch_bounds__(kThreads) small_kernel(const SmallParams p, const __grid_constant__ CUtensorMap map) {
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
    if (threadIdx.x == kConsumers) produce<kGated>(p, &map, head, ring, slice, first_tile, tile_step);
    return;
  }
  wait_for_previous();
  const int x_stride = p.pieces * kPieceBytes + kPad;
  stage_tokens(p, xs, x_stride, slice);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  RingPosition next;
  int buffer = 0;
  for (int tile = first_tile; tile < p.tiles; tile += tile_step, buffer ^= 1) {
    float acc[kHalves<kGated>][2][4] = {};
    multiply<T, kGated>(p, head, ring, xs, x_stride, slice, next, acc);
#pragma unroll
    for (int i = 0; i < 4 * kHalves<kGated>; ++i) head->sums[buffer][warp][i][lane] = acc[i / 4][0][i % 4] + acc[i / 4][1][i % 4];
    named_barrier(1, kConsumers);  // two buffers: the other one was read before this point
    float sum[kHalves<kGated>] = {};
    if (threadIdx.x < kSums) {
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
#pragma unroll
        for (int half = 0; half < kHalves<kGated>; ++half) sum[half] += head->sums[buffer][w][half * 4 + warp][lane];
      }
    }
    if (p.slices > 1 && !join_slices<kGated>(p, head, tile, slice, sum)) continue;
    if (threadIdx.x < kSums) write_tile<Out, kGated>(p, tile, sum);
  }
}

size_t shared_bytes(int64_t tokens, int pieces, int stages) {
  return sizeof(SharedHead) + static_cast<size_t>(stages) * kStageBytes +
         static_cast<size_t>(tokens) * static_cast<size_t>(x_row_stride(pieces));
}

// How a product is spread: into as many slices of k as the tokens' part needs to fit, or as leave few blocks idle. Two
// blocks a multiprocessor even out their ends, where the tokens leave room for two rings.
struct Plan {
  int slices = 1;
  int pieces = 0;
  int stages = 0;
  int blocks = 0;
};

Plan plan(const Context& ctx, const LinearCall& call, int tiles, int all_pieces) {
  const size_t limit = ctx.cuda->shared_memory();
  Plan best;
  double best_cost = 0;
  for (int slices = 1; slices <= std::min(all_pieces, 16); ++slices) {
    const int pieces = (all_pieces + slices - 1) / slices;
    if (shared_bytes(call.num_tokens, pieces, kMinStages) > limit) continue;
    const int used = (all_pieces + pieces - 1) / pieces;  // slices that have something to do
    const int columns = std::max(1, ctx.cuda->num_sms() / used);
    const int rounds = (tiles + columns - 1) / columns;
    const double cost = rounds * (pieces + (used > 1 ? kJoinCost : 0.0));
    if (best.pieces == 0 || cost < best_cost) best = {used, pieces, kMinStages, 1}, best_cost = cost;
  }
  if (best.pieces == 0) return best;
  if (shared_bytes(call.num_tokens, best.pieces, kMinStages) + kReserved <= (limit + kReserved) / 2) {
    best.blocks = 2;
  } else {
    while (best.stages < kMaxStages && shared_bytes(call.num_tokens, best.pieces, best.stages + 1) <= limit) ++best.stages;
  }
  best.blocks = std::max(1, std::min(tiles, best.blocks * ctx.cuda->num_sms() / best.slices)) * best.slices;
  return best;
}

template <typename T, typename Out>
void launch_small(const Context& ctx, const SmallParams& p, const CUtensorMap& map, bool gated, unsigned grid, size_t bytes) {
  launch(ctx, gated ? small_kernel<T, Out, true> : small_kernel<T, Out, false>, dim3(grid), dim3(kThreads), bytes, p, map);
}

}  // namespace

bool linear_small_can(const Context& ctx, const LinearCall& call) {
  if (ctx.cuda->capability() < 90 || call.num_tokens > kSmallTokens) return false;
  const auto element = static_cast<int64_t>(dtype_bytes(call.dtype, 1));
  const auto bits = reinterpret_cast<uintptr_t>(call.w) | reinterpret_cast<uintptr_t>(call.x) |
                    static_cast<uintptr_t>(call.k * element) | static_cast<uintptr_t>(call.x_stride * element);
  return bits % 16 == 0 && call.rows < (int64_t{1} << 30);
}

void linear_small(const Context& ctx, const LinearCall& call) {
  const auto element = static_cast<int64_t>(dtype_bytes(call.dtype, 1));
  SmallParams p{};
  p.row_bytes = static_cast<int>(call.k * element);
  p.rows = static_cast<int>(call.rows);
  p.x = static_cast<const uint8_t*>(call.x);
  p.x_stride_bytes = call.x_stride * element;
  p.tokens = static_cast<int>(call.num_tokens);
  p.bias = call.bias;
  p.w_scales = call.w_scales;
  p.x_scales = call.x_scales;
  p.out = call.out;
  p.out_stride = call.out_stride;
  const int halves = call.gated ? 2 : 1;
  p.tiles = (p.rows / halves + kRows - 1) / kRows;
  const Plan how = plan(ctx, call, p.tiles, (p.row_bytes + kPieceBytes - 1) / kPieceBytes);
  CHECK_GE(how.pieces, 1);
  p.slices = how.slices;
  p.pieces = how.pieces;
  p.stages = how.stages;
  p.arrivals = ctx.cuda->counters();
  const Scratch scratch(ctx);
  if (p.slices > 1) p.partial = scratch.floats(static_cast<int64_t>(p.tiles) * p.slices * halves * kSums);
  if (p.slices > 1) CHECK_LE(p.tiles, CudaContext::kCounters);
  const auto grid = static_cast<unsigned>(how.blocks);
  const size_t bytes = shared_bytes(p.tokens, p.pieces, p.stages);
  const CUtensorMap map = ctx.cuda->tensor_map(call.w, DType::kU8, call.rows, p.row_bytes, p.row_bytes, kRows);
  const auto go = [&](auto type) {
    using T = typename decltype(type)::type;
    if (call.out_type == DType::kF32) launch_small<T, float>(ctx, p, map, call.gated, grid, bytes);
    else if (call.out_type == DType::kBF16) launch_small<T, bf16>(ctx, p, map, call.gated, grid, bytes);
    else launch_small<T, half>(ctx, p, map, call.gated, grid, bytes);
  };
  if (call.dtype == DType::kF8E4M3) go(std::type_identity<fp8>{});
  else by_activation(call.dtype, go);
}

}  // namespace tutti::cuda
