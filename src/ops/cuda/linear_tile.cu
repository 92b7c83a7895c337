// Products of up to 64 tokens on Hopper: still bound by the weights' bytes, but with too many tokens for linear_few.cu.
// A block takes tiles of 128 weight rows against all tokens. One thread has the bulk copy engine bring pieces of 128 bytes
// of k of the rows and of the tokens into a ring, a warp finds what each token's sums are multiplied by; two warpgroups
// multiply 64 rows each with the asynchronous matrix instructions, weights as the left side, so that 8, 16 or 32 tokens cost
// as little as they are. Gates, additions, rotation and cache writes happen where a tile's sums are (small_write.cuh).
//
// A norm is shared between two products: the one that adds to the stream leaves it times the norm's weight, and sums of its
// squares for each tile; the next one multiplies that, and its sums by the token's factor.
//
// A product with few tiles has each of them multiplied by a cluster of blocks, a part of k each. They add up their parts in
// shared memory, each warp of the cluster for whole tokens, always in the same order. How many parts there are depends on the
// weight alone. Up to 16 tokens tiles may be narrow: 64 rows, of which the two warpgroups multiply every second piece each, where
// that occupies more multiprocessors; not with CudaOptions::batch_invariant, as their order of sums is another.
//
// Most of the code is run once by each block, and has to come from memory first: loops are not unrolled.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/dispatch.h"
#include "ops/cuda/tile_results.cuh"
#include "ops/cuda/wgmma.cuh"

namespace tutti::cuda {
namespace {

// What a block does: tiles first, first + step, ..., pieces [begin, end) of each.
struct Share {
  int first;
  int step;
  int begin;
  int end;
};
__device__ __forceinline__ Share share_of(const TileParams& p) {
  const int slice = static_cast<int>(blockIdx.x) % p.slices;
  return {static_cast<int>(blockIdx.x) / p.slices, static_cast<int>(gridDim.x) / p.slices, slice * p.pieces / p.slices, (slice + 1) * p.pieces / p.slices};
}

// Of a stage; in a narrow tile it has two pieces.
template <int kTokens>
__host__ __device__ __forceinline__ int stage_bytes(bool narrow) {
  return kStageBytes<kTokens> + (narrow ? kTokenBytes<kTokens> : 0);
}

// One thread: the block's pieces in order. Weights that are no kernel's do not wait for the previous one, tokens do.
template <int kTokens, bool kGated, bool kCanBeNarrow>
__device__ void produce(const TileParams& p, const CUtensorMap* w_map, const CUtensorMap* x_map, SharedHead* head, uint8_t* ring, const Share& share) {
  const uint64_t policy = evict_first();
  const bool narrow = kCanBeNarrow && p.narrow;
  const int bytes = stage_bytes<kTokens>(narrow);
  const auto bring_weights = [&](int tile, int piece, int stage) {
    const int column = piece * kPieceBytes;
    uint8_t* to = ring + stage * bytes;
    arrive_expect(&head->full[stage], bytes);
    if (narrow) {
      tensor_copy(to, w_map, 2 * column, tile * kGroupRows, &head->full[stage], policy);
      tensor_copy(to + kWeightBytes / 2, w_map, 2 * column + kPieceBytes, tile * kGroupRows, &head->full[stage], policy);
    } else if (kGated) {
      tensor_copy(to, w_map, column, tile * kGroupRows, &head->full[stage], policy);
      tensor_copy(to + kWeightBytes / 2, w_map, column, p.rows / 2 + tile * kGroupRows, &head->full[stage], policy);
    } else {
      tensor_copy(to, w_map, column, tile * kRows, &head->full[stage], policy);
    }
  };
  const auto bring_tokens = [&](int piece, int stage) {
    uint8_t* to = ring + stage * bytes + kWeightBytes;
    const int column = piece * kPieceBytes;
    tensor_copy(to, x_map, narrow ? 2 * column : column, 0, &head->full[stage]);
    if (narrow) tensor_copy(to + kTokenBytes<kTokens>, x_map, 2 * column + kPieceBytes, 0, &head->full[stage]);
  };
  prefetch_map(x_map);
  if (p.fresh) wait_for_previous();
  const int ahead = min(share.end, share.begin + p.stages);
#pragma unroll 1
  for (int piece = share.begin; piece < ahead; ++piece) bring_weights(share.first, piece, piece - share.begin);
  wait_for_previous();
#pragma unroll 1
  for (int piece = share.begin; piece < ahead; ++piece) bring_tokens(piece, piece - share.begin);
  RingPosition at;
#pragma unroll 1
  for (int i = share.begin; i < ahead; ++i) at.advance(p.stages);
  int piece = ahead;
#pragma unroll 1
  for (int tile = share.first; tile < p.tiles; tile += share.step, piece = share.begin) {
#pragma unroll 1
    for (; piece < share.end; ++piece, at.advance(p.stages)) {
      wait_phase(&head->empty[at.stage], at.parity ^ 1);
      bring_weights(tile, piece, at.stage);
      bring_tokens(piece, at.stage);
    }
  }
}

template <typename T, typename Out, int kTokens, ProductKind kKind>
__global__ void __launch_bounds__(kThreads, kBlocksPerSM)
    tile_kernel(const TileParams p, const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map) {
  constexpr bool kGated = kKind == ProductKind::kGated;
  constexpr int kEach = kTokens / 2;
  constexpr int kFactors = 2;  // the barrier that they are there
  const bool narrow = kMayBeNarrow<kKind, kTokens> && p.narrow;
  const int group = static_cast<int>(threadIdx.x) / 128, bytes = stage_bytes<kTokens>(narrow);
  extern __shared__ __align__(1024) uint8_t shared[];
  auto* head = reinterpret_cast<SharedHead*>(shared);
  uint8_t* ring = shared + sizeof(SharedHead);
  auto* sums = reinterpret_cast<float*>(p.exchange_in_ring ? ring : ring + p.stages * bytes);
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int s = 0; s < p.stages; ++s) {
      init_barrier(&head->full[s], 1);
      init_barrier(&head->empty[s], kWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  let_next_start();
  const Share share = share_of(p);
  if (threadIdx.x >= kConsumers + 32) {  // consumers would begin to multiply later
    wait_for_previous();
#pragma unroll 1
    for (int token = static_cast<int>(threadIdx.x) % 32 / 4; token < kTokens; token += 8) find_factor(p, token, head->factors);
    named_arrive(kFactors, kConsumers + 32);
    return;
  }
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) produce<kTokens, kGated, kMayBeNarrow<kKind, kTokens>>(p, &w_map, &x_map, head, ring, share);
    return;
  }
  // Neither weights nor the step's positions and slots are a kernel's before this one (ops/cuda/attention.h).
  Met<Out, kKind, kOwn<kTokens>> met;
  met.read_rows(p, share.first);
  if constexpr (kReadsFirst<kTokens>) met.read_places(p, first_token(), p.slices * kWarps);
  wait_for_previous();
  RingPosition next;
#pragma unroll 1
  for (int tile = share.first; tile < p.tiles; tile += share.step) {
    if (tile != share.first) {
      met.read_rows(p, tile);
      if constexpr (kReadsFirst<kTokens>) met.read_places(p, first_token(), p.slices * kWarps);
    }
    if constexpr (kReadsFirst<kTokens>) met.read_stream(p, first_token(), p.slices * kWarps);
    // The FP8 units add with about 14 bits: what they sum up is taken over into float32 after each piece.
    constexpr bool kNarrowSums = std::is_same_v<T, fp8>;
    float acc[kEach] = {};
#pragma unroll 1
    for (int piece = share.begin; piece < share.end; ++piece, next.advance(p.stages)) {
      float scale = 1.0f;
      if (kNarrowSums && p.block_scaled) {
        const int row = kGated ? group * (p.rows / 2) + tile * kGroupRows : tile * (narrow ? kGroupRows : kRows);
        scale = p.w_scales[row / static_cast<int>(kScaleBlock) * p.scale_columns + (narrow ? min(2 * piece + group, p.scale_columns - 1) : piece)];
      }
      wait_phase(&head->full[next.stage], next.parity);
      const uint8_t* stage = ring + next.stage * bytes;
      const uint64_t a = describe(stage + group * (kGroupRows * kPieceBytes));
      const uint64_t b = describe(stage + kWeightBytes + (narrow ? group * kTokenBytes<kTokens> : 0));
      if constexpr (kNarrowSums) {
        float piece_sums[kEach];
        begin_multiply();
#pragma unroll
        for (int k = 0; k < kPieceBytes / 32; ++k) multiply<T>(piece_sums, a + 2 * k, b + 2 * k, k > 0);
        end_multiply();
#pragma unroll
        for (int i = 0; i < kEach; ++i) acc[i] += scale * piece_sums[i];
      } else {
        begin_multiply();
#pragma unroll
        for (int k = 0; k < kPieceBytes / 32; ++k) multiply<T>(acc, a + 2 * k, b + 2 * k, true);
        end_multiply();
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(&head->empty[next.stage]);
    }
    if (tile == share.first) named_barrier(kFactors, kConsumers + 32);
    finish_tile<Out, kKind, kTokens>(p, head->factors, sums, tile, acc, met);
  }
}

constexpr size_t kReserved = 1024;  // shared memory that each block costs beside its own

// Of a block that has so much, one fits on a multiprocessor, and one with less of another kernel beside it.
size_t bytes_of_half(const Context& ctx) { return (ctx.cuda->shared_memory() + kReserved) / kBlocksPerSM; }

// Blocks of a product that has at most one for each multiprocessor keep apart: where another kernel ends, two of them would
// else start on the multiprocessors that end first, which then take twice as long as the others that have none.
bool one_on_each(const Context& ctx, int blocks, int slices) { return slices > 1 && blocks <= ctx.cuda->num_sms(); }

// How many clusters of `slices` blocks run at once, a block on each multiprocessor: those of a cluster are neighbours, so that
// it depends on how the GPU is built.
int clusters_at_once(const Context& ctx, int slices) {
  int& known = ctx.cuda->clusters_at_once()[static_cast<size_t>(slices)];
  if (known > 0) return known;
  const auto* kernel = reinterpret_cast<const void*>(tile_kernel<bf16, bf16, 8, ProductKind::kPlain>);
  const size_t bytes = bytes_of_half(ctx);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)), "cudaFuncSetAttribute");
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(slices), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(slices * ctx.cuda->num_sms()));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = bytes;
  config.attrs = &cluster;
  config.numAttrs = 1;
  check(cudaOccupancyMaxActiveClusters(&known, kernel, &config), "cudaOccupancyMaxActiveClusters");
  return known;
}

// How many blocks share a tile: as few as give almost every multiprocessor one, and only where all tiles are worked on at
// once. The same at every number of tokens.
int slices_of(const Context& ctx, int tiles, int pieces) {
  int slices = 1;
  while (slices < std::min(kMaxSlices, pieces) && 10 * tiles * slices < 9 * ctx.cuda->num_sms() &&
         tiles * (slices + 1) <= kBlocksPerSM * ctx.cuda->num_sms()) {
    ++slices;
  }
  while (one_on_each(ctx, tiles * slices, slices) && tiles > clusters_at_once(ctx, slices)) --slices;
  return slices;
}

// Do narrow tiles occupy more multiprocessors?
bool narrow_is_better(const Context& ctx, const LinearCall& call, int tokens, int pieces) {
  if (ctx.cuda->batch_invariant() || call.gated || call.rope != nullptr || tokens > 16) return false;
  const auto blocks = [&](int rows_of_tile, int units) {
    const int tiles = (static_cast<int>(call.rows) + rows_of_tile - 1) / rows_of_tile, slices = slices_of(ctx, tiles, units);
    return one_on_each(ctx, tiles * slices, slices) ? tiles * slices : 0;
  };
  const int wide = blocks(kRows, pieces);
  return wide > 0 && blocks(kGroupRows, (pieces + 1) / 2) > wide;
}

template <typename T, typename Out, int kTokens>
void launch_tile(const Context& ctx, const LinearCall& call, TileParams& p, const CUtensorMap& w_map, const CUtensorMap& x_map) {
  p.slices = slices_of(ctx, p.tiles, p.pieces);
  const int most = kBlocksPerSM * ctx.cuda->num_sms(), rounds = (p.tiles * p.slices + most - 1) / most;
  const int clusters = (p.tiles + rounds - 1) / rounds;  // as many as end together
  p.exchange_in_ring = rounds == 1;
  const size_t exchange = p.exchange_in_ring ? 0 : kSumBytes<kTokens>;
  const size_t room = bytes_of_half(ctx) - 2 * kReserved - sizeof(SharedHead) - exchange;  // beside a block with more than half
  p.stages = std::min(kMaxStages, static_cast<int>(room) / stage_bytes<kTokens>(p.narrow));
  size_t bytes = sizeof(SharedHead) + static_cast<size_t>(p.stages * stage_bytes<kTokens>(p.narrow)) + exchange;
  const int blocks = clusters * p.slices;
  if (one_on_each(ctx, blocks, p.slices)) bytes = std::max(bytes, bytes_of_half(ctx));
  const auto go = [&](auto kernel) {
    launch_placed(ctx, {.cluster = static_cast<unsigned>(p.slices)}, kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), bytes, p, w_map, x_map);
  };
  if constexpr (!std::is_same_v<Out, float>) {
    if (call.gated) return go(tile_kernel<T, Out, kTokens, ProductKind::kGated>);
    if (call.rope != nullptr) return go(tile_kernel<T, Out, kTokens, ProductKind::kRotated>);
  }
  go(tile_kernel<T, Out, kTokens, ProductKind::kPlain>);
}

}  // namespace

bool linear_tile_can(const Context& ctx, const LinearCall& call) {
  if (ctx.cuda->capability() != 90 || call.num_tokens > kMaxTileTokens || call.dtype != call.x_type) return false;
  if (call.norm_weight != nullptr && call.scaled == nullptr) return false;
  if (call.dtype != DType::kF8E4M3 && call.out_type != call.x_type && call.out_type != DType::kF32) return false;
  if ((call.gated || call.rope != nullptr) && call.out_type == DType::kF32) return false;
  if (call.rope != nullptr && (kRows % call.rope->head_dim != 0 || call.rope->head_dim % 16 != 0)) return false;
  if (call.block_scaled && call.gated && call.rows / 2 % kScaleBlock != 0) return false;
  const auto element = static_cast<int64_t>(dtype_bytes(call.dtype, 1));
  const auto bits = reinterpret_cast<uintptr_t>(call.w) | reinterpret_cast<uintptr_t>(call.x) |
                    static_cast<uintptr_t>(call.k * element) | static_cast<uintptr_t>(call.x_stride * element) |
                    reinterpret_cast<uintptr_t>(call.scaled) | static_cast<uintptr_t>(call.scaled_stride * element);
  return bits % 16 == 0 && call.rows < (int64_t{1} << 30);
}

void linear_tile(const Context& ctx, const LinearCall& call) {
  const auto element = static_cast<int64_t>(dtype_bytes(call.dtype, 1));
  const int64_t row_bytes = call.k * element;
  const auto features = static_cast<int>(call.gated ? call.rows / 2 : call.rows);
  const int tokens = call.num_tokens > 32 ? 64 : call.num_tokens > 16 ? 32 : call.num_tokens > 8 ? 16 : 8;
  TileParams p{};
  p.rows = static_cast<int>(call.rows);
  p.tokens = static_cast<int>(call.num_tokens);
  p.pieces = p.scale_columns = static_cast<int>((row_bytes + kPieceBytes - 1) / kPieceBytes);
  p.narrow = narrow_is_better(ctx, call, tokens, p.pieces);
  if (p.narrow) p.pieces = (p.pieces + 1) / 2;
  const int rows_of_tile = call.gated || p.narrow ? kGroupRows : kRows;
  p.tiles = (features + rows_of_tile - 1) / rows_of_tile;
  p.bias = call.bias;
  p.w_scales = call.w_scales;
  p.x_scales = call.x_scales;
  if (call.norm_weight != nullptr) {
    p.squares = call.squares;
    p.square_parts = static_cast<int>(ops::norm_parts(call.k));
    p.norm_size = static_cast<int>(call.k);
    p.eps = call.eps;
  }
  p.left = call.left;
  p.block_scaled = call.block_scaled;
  p.add = call.add;
  p.fresh = call.fresh;
  p.out = call.out;
  p.out_stride = call.out_stride;
  const auto four = static_cast<uintptr_t>(dtype_bytes(call.out_type, 4));
  p.wide = ((reinterpret_cast<uintptr_t>(call.out) | reinterpret_cast<uintptr_t>(call.left.scaled)) % four == 0) &&
           (call.out_stride | call.left.stride) % 4 == 0;
  if (call.rope != nullptr) p.rope = *call.rope;
  const CUtensorMap w_map = ctx.cuda->tensor_map(call.w, call.rows, row_bytes, row_bytes, rows_of_tile);
  const bool scaled = call.norm_weight != nullptr;
  const CUtensorMap x_map = ctx.cuda->tensor_map(scaled ? call.scaled : call.x, call.num_tokens, row_bytes,
                                                 (scaled ? call.scaled_stride : call.x_stride) * element, tokens);
  const auto by_tokens = [&]<typename T, typename Out>() {
    if (tokens == 8) launch_tile<T, Out, 8>(ctx, call, p, w_map, x_map);
    else if (tokens == 16) launch_tile<T, Out, 16>(ctx, call, p, w_map, x_map);
    else if (tokens == 32) launch_tile<T, Out, 32>(ctx, call, p, w_map, x_map);
    else launch_tile<T, Out, 64>(ctx, call, p, w_map, x_map);
  };
  const auto by_out = [&]<typename T>() {
    if (call.out_type == DType::kF32) return by_tokens.template operator()<T, float>();
    if constexpr (!std::is_same_v<T, half>) {
      if (call.out_type == DType::kBF16) return by_tokens.template operator()<T, bf16>();
    }
    if constexpr (!std::is_same_v<T, bf16>) {
      if (call.out_type == DType::kF16) return by_tokens.template operator()<T, half>();
    }
    TUTTI_CHECK_FAILED("linear_tile_can() was not asked");
  };
  if (call.dtype == DType::kF8E4M3) by_out.template operator()<fp8>();
  else if (call.dtype == DType::kBF16) by_out.template operator()<bf16>();
  else by_out.template operator()<half>();
}

}  // namespace tutti::cuda
