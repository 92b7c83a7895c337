// Products with at most eight tokens: the weights' bytes are the cost. Persistent blocks; in each, one thread has the bulk
// copy engine fill a ring of shared memory with pieces of 16 weight rows, and eight warps multiply them with the tokens
// on the matrix units (16 rows x 8 tokens an instruction). The ring is filled before the previous kernel's results are
// waited for, so that the memory stays busy between kernels.
//
//   ring stage: 8 boxes of 16 rows x 128 bytes, swizzled by the copy engine; a warp takes one box
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
constexpr int kStages = 5;
constexpr int kStageBytes = kRows * kPieceBytes;
constexpr int kSums = kRows * static_cast<int>(kSmallTokens);  // of a tile

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
  float* partial;      // [tiles, slices, kSums]
  unsigned* arrivals;  // [tiles]
};

struct alignas(1024) SharedHead {  // the ring behind it starts where a swizzle pattern does
  Barrier full[kStages];
  Barrier empty[kStages];
  unsigned last;
  alignas(16) float sums[2][kWarps][4][32];
};

int x_row_stride(int pieces) { return pieces * kPieceBytes + kPad; }

__device__ __forceinline__ uint4 load_shared(const uint8_t* p) { return *reinterpret_cast<const uint4*>(p); }

// Feature of a lane group's first (`below` = 0) and second row. Neighbouring groups take rows 4 apart: their 16 bytes then
// lie in different banks. A gated tile has eight rows of the gate and the eight of the same features of the up projection.
template <bool kGated>
__device__ __forceinline__ int weight_row(int tile, int group, int below, int rows) {
  const int in_box = group / 2 + group % 2 * 4;
  if (!kGated) {
    const int row = tile * kRows + below * 8 + in_box;
    return row < rows ? row : -1;
  }
  const int feature = tile * (kRows / 2) + in_box, half = rows / 2;
  return feature < half ? feature + below * half : -1;
}

template <bool kGated>
__device__ void produce(const SmallParams& p, const CUtensorMap* map, SharedHead* head, uint8_t* ring, int slice, int first_tile,
                        int tile_step) {
  const uint64_t policy = evict_first();
  const int all_pieces = (p.row_bytes + kPieceBytes - 1) / kPieceBytes;
  const int begin = slice * p.pieces, end = min(begin + p.pieces, all_pieces);
  uint32_t count = 0;
  for (int tile = first_tile; tile < p.tiles; tile += tile_step) {
    for (int piece = begin; piece < end; ++piece, ++count) {
      const int stage = count % kStages;
      wait_phase(&head->empty[stage], (count / kStages + 1) % 2);
      const int boxes = min(kWarps, (p.row_bytes - piece * kPieceBytes + kBoxBytes - 1) / kBoxBytes);
      arrive_expect(&head->full[stage], static_cast<uint32_t>(boxes * kRows * kBoxBytes));
      uint8_t* to = ring + stage * kStageBytes;
      for (int box = 0; box < boxes; ++box, to += kRows * kBoxBytes) {
        const int column = piece * kPieceBytes + box * kBoxBytes;
        if (kGated) {
          tensor_copy(to, map, column, tile * 8, &head->full[stage], policy);
          tensor_copy(to + 8 * kBoxBytes, map, column, p.rows / 2 + tile * 8, &head->full[stage], policy);
        } else {
          tensor_copy(to, map, column, tile * kRows, &head->full[stage], policy);
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

// This warp's share of a tile's sums.
template <typename T>
__device__ __forceinline__ void multiply(const SmallParams& p, SharedHead* head, const uint8_t* ring, const uint8_t* xs, int x_stride,
                                         int slice, uint32_t& count, float (&acc)[2][4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  const int all_pieces = (p.row_bytes + kPieceBytes - 1) / kPieceBytes;
  const int begin = slice * p.pieces, end = min(begin + p.pieces, all_pieces);
  const bool has_token = group < p.tokens;
  const int in_box = group / 2 + group % 2 * 4;  // as in weight_row()
  for (int piece = begin; piece < end; ++piece, ++count) {
    const int stage = count % kStages;
    wait_phase(&head->full[stage], count / kStages % 2);
    if (piece * kPieceBytes + warp * kBoxBytes < p.row_bytes) {
      const uint8_t* box = ring + stage * kStageBytes + warp * (kRows * kBoxBytes) + in_box * kBoxBytes;
      const uint8_t* token = xs + group * x_stride + (piece - begin) * kPieceBytes + warp * kBoxBytes;
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const int unit = step * 4 + member;
        const uint4 upper = load_shared(box + (unit ^ in_box) * 16);
        const uint4 lower = load_shared(box + 8 * kBoxBytes + (unit ^ in_box) * 16);
        // Beyond a row's end the copy engine gave zeros; the tokens' bytes there were never written.
        const bool inside = has_token && piece * kPieceBytes + warp * kBoxBytes + unit * 16 < p.row_bytes;
        const uint4 x = inside ? load_shared(token + unit * 16) : make_uint4(0, 0, 0, 0);
        mma<T>(acc[step], upper.x, lower.x, upper.y, lower.y, x.x, x.y);
        mma<T>(acc[step], upper.z, lower.z, upper.w, lower.w, x.z, x.w);
      }
    }
    __syncwarp();
    if (lane == 0) arrive(&head->empty[stage]);
  }
}

// Adds the slices' sums of a tile. True in the block that arrived last, with the whole sums in `upper` and `lower`.
__device__ bool join_slices(const SmallParams& p, SharedHead* head, int tile, int slice, float& upper, float& lower) {
  float2* mine = reinterpret_cast<float2*>(p.partial + static_cast<int64_t>(tile) * p.slices * kSums) + threadIdx.x;
  if (threadIdx.x < kSums / 2) {
    mine[slice * (kSums / 2)] = make_float2(upper, lower);
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
  if (threadIdx.x < kSums / 2) {
    upper = lower = 0;
    for (int s = 0; s < p.slices; ++s) {
      const float2 part = __ldcg(mine + s * (kSums / 2));
      upper += part.x;
      lower += part.y;
    }
  }
  return true;
}

template <typename Out, bool kGated>
__device__ void write_tile(const SmallParams& p, int tile, float upper, float lower) {
  const int lane = threadIdx.x % 32, group = lane / 4, token = 2 * (lane % 4) + threadIdx.x / 32;
  if (token >= p.tokens) return;
  Out* out = static_cast<Out*>(p.out) + token * p.out_stride;
  const int row = weight_row<kGated>(tile, group, 0, p.rows), row_below = weight_row<kGated>(tile, group, 1, p.rows);
  const float x_scale = p.x_scales == nullptr ? 1.0f : p.x_scales[token];
  const auto finish = [&](float sum, int at) {
    if (p.w_scales != nullptr) sum *= p.w_scales[at] * x_scale;
    return p.bias == nullptr ? sum : sum + p.bias[at];
  };
  if (kGated) {
    if (row >= 0) out[row] = from_float<Out>(silu(finish(upper, row)) * finish(lower, row_below));
  } else {
    if (row >= 0) out[row] = from_float<Out>(finish(upper, row));
    if (row_below >= 0) out[row_below] = from_float<Out>(finish(lower, row_below));
  }
}

template <typename T, typename Out, bool kGated>
__global__ void __launch_bounds__(kThreads) small_kernel(const SmallParams p, const __grid_constant__ CUtensorMap map) {
  extern __shared__ __align__(1024) uint8_t shared[];
  auto* head = reinterpret_cast<SharedHead*>(shared);
  uint8_t* ring = shared + sizeof(SharedHead);
  uint8_t* xs = ring + kStages * kStageBytes;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
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
  uint32_t count = 0;
  int buffer = 0;
  for (int tile = first_tile; tile < p.tiles; tile += tile_step, buffer ^= 1) {
    float acc[2][4] = {};
    multiply<T>(p, head, ring, xs, x_stride, slice, count, acc);
#pragma unroll
    for (int i = 0; i < 4; ++i) head->sums[buffer][warp][i][lane] = acc[0][i] + acc[1][i];
    named_barrier(1, kConsumers);  // two buffers: the other one was read before this point
    float upper = 0, lower = 0;
    if (warp < 2) {
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        upper += head->sums[buffer][w][warp][lane];
        lower += head->sums[buffer][w][2 + warp][lane];
      }
    }
    if (p.slices > 1 && !join_slices(p, head, tile, slice, upper, lower)) continue;
    if (warp < 2) write_tile<Out, kGated>(p, tile, upper, lower);
  }
}

size_t shared_bytes(int64_t tokens, int pieces) {
  return sizeof(SharedHead) + kStages * kStageBytes + static_cast<size_t>(tokens) * static_cast<size_t>(x_row_stride(pieces));
}

// How a product is spread: into as many slices of k as the tokens' part needs to fit, or as leave few blocks idle.
struct Plan {
  int slices = 1;
  int pieces = 0;
};

Plan plan(const Context& ctx, const LinearCall& call, int tiles, int all_pieces) {
  Plan best;
  double best_cost = 0;
  for (int slices = 1; slices <= std::min(all_pieces, 16); ++slices) {
    const int pieces = (all_pieces + slices - 1) / slices;
    if (shared_bytes(call.num_tokens, pieces) > ctx.cuda->shared_memory()) continue;
    const int used = (all_pieces + pieces - 1) / pieces;  // slices that have something to do
    const int columns = std::max(1, ctx.cuda->num_sms() / used);
    const int rounds = (tiles + columns - 1) / columns;
    const double cost = rounds * (pieces + (used > 1 ? kJoinCost : 0.0));
    if (best.pieces == 0 || cost < best_cost) best = {used, pieces}, best_cost = cost;
  }
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
  p.tiles = call.gated ? (p.rows / 2 + 7) / 8 : (p.rows + kRows - 1) / kRows;
  const Plan how = plan(ctx, call, p.tiles, (p.row_bytes + kPieceBytes - 1) / kPieceBytes);
  CHECK_GE(how.pieces, 1);
  p.slices = how.slices;
  p.pieces = how.pieces;
  p.arrivals = ctx.cuda->counters();
  const Scratch scratch(ctx);
  if (p.slices > 1) p.partial = scratch.floats(static_cast<int64_t>(p.tiles) * p.slices * kSums);
  if (p.slices > 1) CHECK_LE(p.tiles, CudaContext::kCounters);
  const int columns = std::max(1, std::min(p.tiles, ctx.cuda->num_sms() / p.slices));
  const auto grid = static_cast<unsigned>(columns * p.slices);
  const size_t bytes = shared_bytes(p.tokens, p.pieces);
  const CUtensorMap map = ctx.cuda->tensor_map(call.w, DType::kU8, call.rows, p.row_bytes, p.row_bytes, call.gated ? kRows / 2 : kRows);
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
