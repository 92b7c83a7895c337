// Products with at most eight tokens: the weights' bytes are the cost. Persistent blocks; in each, one warp has the bulk
// copy engine fill a ring of shared memory with pieces of 16 weight rows, and eight warps multiply them with the tokens
// on the matrix units (16 rows x 8 tokens an instruction). The ring is filled before the previous kernel's results are
// waited for, so that the memory stays busy between kernels.
//
//   ring stage: 16 rows x 1024 bytes of k; a warp takes 128 bytes of each row
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
constexpr int kPieceBytes = 1024;                // of a row, in a stage
constexpr int kPad = 64;                         // keeps neighbouring rows in different banks
constexpr int kRowStride = kPieceBytes + kPad;
constexpr int kStages = 4;
constexpr int kStageBytes = kRows * kRowStride;
constexpr int kSums = kRows * static_cast<int>(kSmallTokens);  // of a tile

struct SmallParams {
  const uint8_t* w;
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

struct alignas(128) SharedHead {
  Barrier full[kStages];
  Barrier empty[kStages];
  unsigned last;
  alignas(16) float sums[2][kWarps][4][32];
};

int x_row_stride(int pieces) { return pieces * kPieceBytes + kPad; }

__device__ __forceinline__ uint4 load_shared(const uint8_t* p) { return *reinterpret_cast<const uint4*>(p); }

// Row r of a tile. A gated tile has eight rows of the gate and the eight of the same features of the up projection.
template <bool kGated>
__device__ __forceinline__ int weight_row(int tile, int r, int rows) {
  if (!kGated) {
    const int row = tile * kRows + r;
    return row < rows ? row : -1;
  }
  const int feature = tile * (kRows / 2) + r % 8, half = rows / 2;
  return feature < half ? feature + r / 8 * half : -1;
}

template <bool kGated>
__device__ void produce(const SmallParams& p, SharedHead* head, uint8_t* ring, int slice, int first_tile, int tile_step) {
  const int lane = threadIdx.x % 32;
  const uint64_t policy = evict_first();
  const int all_pieces = (p.row_bytes + kPieceBytes - 1) / kPieceBytes;
  const int begin = slice * p.pieces, end = min(begin + p.pieces, all_pieces);
  uint32_t count = 0;
  for (int tile = first_tile; tile < p.tiles; tile += tile_step) {
    const int row = lane < kRows ? weight_row<kGated>(tile, lane, p.rows) : -1;
    const int valid = __popc(__ballot_sync(kAllLanes, row >= 0));
    for (int piece = begin; piece < end; ++piece, ++count) {
      const int stage = count % kStages;
      wait_phase(&head->empty[stage], (count / kStages + 1) % 2);
      const int bytes = min(kPieceBytes, p.row_bytes - piece * kPieceBytes);
      if (lane == 0) arrive_expect(&head->full[stage], static_cast<uint32_t>(bytes * valid));
      __syncwarp();
      if (row >= 0) {
        bulk_copy(ring + stage * kStageBytes + lane * kRowStride, p.w + static_cast<int64_t>(row) * p.row_bytes + piece * kPieceBytes,
                  static_cast<uint32_t>(bytes), &head->full[stage], policy);
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
                                         int slice, uint32_t& count, float (&acc)[4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  const int all_pieces = (p.row_bytes + kPieceBytes - 1) / kPieceBytes;
  const int begin = slice * p.pieces, end = min(begin + p.pieces, all_pieces);
  const bool has_token = group < p.tokens;
  for (int piece = begin; piece < end; ++piece, ++count) {
    const int stage = count % kStages;
    wait_phase(&head->full[stage], count / kStages % 2);
    const uint8_t* tile = ring + stage * kStageBytes + group * kRowStride;
    const uint8_t* token = xs + group * x_stride + (piece - begin) * kPieceBytes;
#pragma unroll
    for (int step = 0; step < kPieceBytes / kWarps / 64; ++step) {
      const int at = warp * (kPieceBytes / kWarps) + step * 64 + member * 16;
      const uint4 zero = make_uint4(0, 0, 0, 0);
      const bool inside = piece * kPieceBytes + at < p.row_bytes;
      const uint4 upper = inside ? load_shared(tile + at) : zero;
      const uint4 lower = inside ? load_shared(tile + 8 * kRowStride + at) : zero;
      const uint4 x = inside && has_token ? load_shared(token + at) : zero;
      mma<T>(acc, upper.x, lower.x, upper.y, lower.y, x.x, x.y);
      mma<T>(acc, upper.z, lower.z, upper.w, lower.w, x.z, x.w);
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
  const int row = weight_row<kGated>(tile, group, p.rows), row_below = weight_row<kGated>(tile, group + 8, p.rows);
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
__global__ void __launch_bounds__(kThreads) small_kernel(const SmallParams p) {
  extern __shared__ __align__(128) uint8_t shared[];
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
    produce<kGated>(p, head, ring, slice, first_tile, tile_step);
    return;
  }
  wait_for_previous();
  const int x_stride = p.pieces * kPieceBytes + kPad;
  stage_tokens(p, xs, x_stride, slice);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint32_t count = 0;
  int buffer = 0;
  for (int tile = first_tile; tile < p.tiles; tile += tile_step, buffer ^= 1) {
    float acc[4] = {};
    multiply<T>(p, head, ring, xs, x_stride, slice, count, acc);
#pragma unroll
    for (int i = 0; i < 4; ++i) head->sums[buffer][warp][i][lane] = acc[i];
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
    const double cost = rounds * pieces + (used > 1 ? 1.5 : 0.0);  // in pieces of a tile; joining costs about 1.5
    if (best.pieces == 0 || cost < best_cost) best = {used, pieces}, best_cost = cost;
  }
  return best;
}

template <typename T, typename Out>
void launch_small(const Context& ctx, const SmallParams& p, bool gated, unsigned grid, size_t bytes) {
  launch(ctx, gated ? small_kernel<T, Out, true> : small_kernel<T, Out, false>, dim3(grid), dim3(kThreads), bytes, p);
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
  p.w = static_cast<const uint8_t*>(call.w);
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
  const auto go = [&](auto type) {
    using T = typename decltype(type)::type;
    if (call.out_type == DType::kF32) launch_small<T, float>(ctx, p, call.gated, grid, bytes);
    else if (call.out_type == DType::kBF16) launch_small<T, bf16>(ctx, p, call.gated, grid, bytes);
    else launch_small<T, half>(ctx, p, call.gated, grid, bytes);
  };
  if (call.dtype == DType::kF8E4M3) go(std::type_identity<fp8>{});
  else by_activation(call.dtype, go);
}

}  // namespace tutti::cuda
