// Products of up to 64 tokens on Hopper: still bound by the weights' bytes, but with too many tokens for linear_few.cu.
// A block takes tiles of 128 weight rows against all tokens. One thread has the bulk copy engine bring pieces of 128 bytes
// of k of the rows and of the tokens into a ring; two warpgroups multiply 64 rows each with the asynchronous matrix
// instructions, weights as the left side, so that 8, 16 or 32 tokens cost as little as they are. Gates, additions, rotation
// and cache writes happen where a tile's sums are (small_write.cuh).
//
// A product with few tiles has each of them multiplied by a cluster of blocks, a part of k each. They add up their parts in
// shared memory, each block for eight tokens at a time, always in the same order. How many parts there are depends on the
// weight alone, so that a token's result does not depend on how many tokens there are.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/bulk.cuh"
#include "ops/cuda/cluster.cuh"
#include "ops/cuda/dispatch.h"
#include "ops/cuda/small_write.cuh"

namespace tutti::cuda {
namespace {

constexpr int kRows = 128;  // of a tile; a gated one has 64 of the gate and the up projection's for the same features
constexpr int kGroupRows = 64;
constexpr int kPieceBytes = 128;
constexpr int kWarps = 8;
constexpr int kConsumers = kWarps * 32;
constexpr int kThreads = kConsumers + 32;
constexpr int kMaxStages = 10;
constexpr int kWeightBytes = kRows * kPieceBytes;

constexpr int kMaxSlices = 8;  // blocks of a cluster
constexpr int kBlocksPerSM = 2;  // one multiplies while the other waits, or belongs to the next kernel and fills its ring

struct TileParams {
  int rows;
  int tokens;
  int tiles;
  int pieces;  // of a row
  int slices;  // of k
  const float* bias;
  const float* w_scales;
  const float* x_scales;
  bool block_scaled;
  bool add;
  bool fresh;
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
};

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

// A tile of rows of 128 bytes, swizzled by the copy engine, as the matrix instructions want it described.
__device__ __forceinline__ uint64_t describe(const void* tile) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 / 16} << 32, kUnused = uint64_t{1} << 16;
  return kSwizzle128 | kEightRows | kUnused | ((shared_address(tile) & 0x3ffff) >> 4);
}

#define TUTTI_WGMMA(shape, types, rest, sums, a_at, b_at, add_at, ...)                                \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_at ", 0;\n"                                     \
               "wgmma.mma_async.sync.aligned." shape ".f32." types " {" sums "}, " a_at ", " b_at         \
               ", p, 1, 1" rest ";\n}\n"                                                               \
               : __VA_ARGS__                                                                           \
               : "l"(a), "l"(b), "r"(static_cast<int>(add)))
#define TUTTI_SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TUTTI_WGMMA_8(k, types, rest) TUTTI_WGMMA("m64n8k" k, types, rest, "%0,%1,%2,%3", "%4", "%5", "%6", TUTTI_SUMS_4(0))
#define TUTTI_WGMMA_16(k, types, rest) \
  TUTTI_WGMMA("m64n16k" k, types, rest, "%0,%1,%2,%3,%4,%5,%6,%7", "%8", "%9", "%10", TUTTI_SUMS_4(0), TUTTI_SUMS_4(4))
#define TUTTI_WGMMA_32(k, types, rest)                                                                                    \
  TUTTI_WGMMA("m64n32k" k, types, rest, "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15", "%16", "%17", "%18",     \
              TUTTI_SUMS_4(0), TUTTI_SUMS_4(4), TUTTI_SUMS_4(8), TUTTI_SUMS_4(12))
#define TUTTI_WGMMA_64(k, types, rest)                                                                                        \
  TUTTI_WGMMA("m64n64k" k, types, rest,                                                                                       \
              "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
              "%30,%31",                                                                                                      \
              "%32", "%33", "%34", TUTTI_SUMS_4(0), TUTTI_SUMS_4(4), TUTTI_SUMS_4(8), TUTTI_SUMS_4(12), TUTTI_SUMS_4(16),     \
              TUTTI_SUMS_4(20), TUTTI_SUMS_4(24), TUTTI_SUMS_4(28))
#define TUTTI_WGMMA_OF(k, types, rest)                        \
  if constexpr (kSums == 4) TUTTI_WGMMA_8(k, types, rest);    \
  else if constexpr (kSums == 8) TUTTI_WGMMA_16(k, types, rest); \
  else if constexpr (kSums == 16) TUTTI_WGMMA_32(k, types, rest); \
  else TUTTI_WGMMA_64(k, types, rest)

// d = a b^T (+ d): a 64 rows, b 2 kSums rows, 32 bytes of k of each.
template <typename T, int kSums>
__device__ __forceinline__ void multiply(float (&d)[kSums], uint64_t a, uint64_t b, bool add) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (std::is_same_v<T, bf16>) {
    TUTTI_WGMMA_OF("16", "bf16.bf16", ", 0, 0");
  } else if constexpr (std::is_same_v<T, half>) {
    TUTTI_WGMMA_OF("16", "f16.f16", ", 0, 0");
  } else {
    TUTTI_WGMMA_OF("32", "e4m3.e4m3", "");
  }
#endif
}

#undef TUTTI_WGMMA_OF
#undef TUTTI_WGMMA_64
#undef TUTTI_WGMMA_32
#undef TUTTI_WGMMA_16
#undef TUTTI_WGMMA_8
#undef TUTTI_SUMS_4
#undef TUTTI_WGMMA

__device__ __forceinline__ void begin_multiply() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void end_multiply() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}

// One thread: the block's pieces in order. Weights that are no kernel's do not wait for the previous one, tokens do.
template <int kTokens, bool kGated>
__device__ void produce(const TileParams& p, const CUtensorMap* w_map, const CUtensorMap* x_map, SharedHead* head, uint8_t* ring, const Share& share) {
  const uint64_t policy = evict_first();
  const auto bring_weights = [&](int tile, int piece, int stage) {
    const int column = piece * kPieceBytes;
    uint8_t* to = ring + stage * kStageBytes<kTokens>;
    arrive_expect(&head->full[stage], kStageBytes<kTokens>);
    if (kGated) {
      tensor_copy(to, w_map, column, tile * kGroupRows, &head->full[stage], policy);
      tensor_copy(to + kWeightBytes / 2, w_map, column, p.rows / 2 + tile * kGroupRows, &head->full[stage], policy);
    } else {
      tensor_copy(to, w_map, column, tile * kRows, &head->full[stage], policy);
    }
  };
  const auto bring_tokens = [&](int piece, int stage) {
    tensor_copy(ring + stage * kStageBytes<kTokens> + kWeightBytes, x_map, piece * kPieceBytes, 0, &head->full[stage]);
  };
  if (p.fresh) wait_for_previous();
  const int ahead = min(share.end, share.begin + p.stages);
  for (int piece = share.begin; piece < ahead; ++piece) bring_weights(share.first, piece, piece - share.begin);
  wait_for_previous();
  for (int piece = share.begin; piece < ahead; ++piece) bring_tokens(piece, piece - share.begin);
  RingPosition at;
  for (int i = share.begin; i < ahead; ++i) at.advance(p.stages);
  int piece = ahead;
  for (int tile = share.first; tile < p.tiles; tile += share.step, piece = share.begin) {
    for (; piece < share.end; ++piece, at.advance(p.stages)) {
      wait_phase(&head->empty[at.stage], at.parity ^ 1);
      bring_weights(tile, piece, at.stage);
      bring_tokens(piece, at.stage);
    }
  }
}

// What a sum becomes that belongs to row `at` of the weight.
__device__ __forceinline__ float finished(const TileParams& p, float value, int at, int token) {
  if (p.w_scales != nullptr) value *= p.block_scaled ? p.x_scales[token] : p.w_scales[at] * p.x_scales[token];
  return p.bias == nullptr ? value : value + p.bias[at];
}

// Sums in shared memory. Value i of a thread is of row warp * 16 + lane / 4 + 8 * (i / 2 % 2) of the tile and of token
// i / 4 * 8 + lane % 4 * 2 + i % 2. Values of neighbouring rows lie in different banks.
__device__ __forceinline__ int place_of(int i, int thread) { return i * kConsumers + (thread ^ (i / 2 % 2 + thread / 32 % 2 * 2)); }
__device__ __forceinline__ int place_of_sum(int row, int token) {
  return place_of(token / 8 * 4 + row % 16 / 8 * 2 + token % 2, row / 16 * 32 + row % 8 * 4 + token % 8 / 2);
}

// The sums of eight tokens become results.
template <typename Out, ProductKind kKind>
__device__ __forceinline__ void write_tokens(const TileParams& p, const float* sums, int tile, int first_token) {
  constexpr int kFeatures = kKind == ProductKind::kPlain ? kRows : kGroupRows, kAtOnce = kConsumers / kFeatures;
  const int feature = threadIdx.x % kFeatures;
#pragma unroll
  for (int i = 0; i < 8 / kAtOnce; ++i) {
    const int token = first_token + threadIdx.x / kFeatures + i * kAtOnce;
    if (token >= p.tokens) continue;
    Out* to = static_cast<Out*>(p.out) + token * p.out_stride;
    if constexpr (kKind == ProductKind::kRotated) {  // a tile has whole heads
      const int half = p.rope.head_dim / 2, in_tile = feature / half * p.rope.head_dim + feature % half, row = tile * kRows + in_tile;
      if (row >= p.rows) continue;
      const float* angle = p.rope.cos_sin + static_cast<int64_t>(p.rope.positions[token]) * p.rope.head_dim + feature % half;
      write_rotated<Out>(p.rope, to, row, p.rope.slots[token], finished(p, sums[place_of_sum(in_tile, token)], row, token),
                         finished(p, sums[place_of_sum(in_tile + half, token)], row + half, token), angle[0], angle[half]);
    } else {
      const int row = tile * kFeatures + feature, features = kKind == ProductKind::kGated ? p.rows / 2 : p.rows;
      if (row >= features) continue;
      float value = finished(p, sums[place_of_sum(feature, token)], row, token);
      if constexpr (kKind == ProductKind::kGated) {
        value = silu(value) * finished(p, sums[place_of_sum(kGroupRows + feature, token)], features + row, token);
      }
      to[row] = from_float<Out>(p.add ? to_float(to[row]) + value : value);
    }
  }
}

// Value i of this thread in all blocks of the cluster, added up; four of them.
__device__ __forceinline__ void join(const TileParams& p, float* sums, int first) {
  float parts[kMaxSlices][4];
#pragma unroll
  for (int block = 0; block < kMaxSlices; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      parts[block][i] = block < p.slices ? load_of_block(&sums[place_of(first + i, threadIdx.x)], static_cast<unsigned>(block)) : 0.0f;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float sum = parts[0][i];
#pragma unroll
    for (int block = 1; block < kMaxSlices; ++block) sum += parts[block][i];
    sums[place_of(first + i, threadIdx.x)] = sum;  // that no other thread reads before the barrier
  }
}

template <typename Out, ProductKind kKind, int kTokens>
__device__ void finish_tile(const TileParams& p, float* sums, int tile, const float (&acc)[kTokens / 2]) {
  named_barrier(1, kConsumers);  // what lay there has been read
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) sums[place_of(i, threadIdx.x)] = acc[i];
  if (p.slices == 1) {
    named_barrier(1, kConsumers);
    for (int token = 0; token < p.tokens; token += 8) write_tokens<Out, kKind>(p, sums, tile, token);
    return;
  }
  cluster_arrive();
  cluster_wait();
  const int first = 8 * static_cast<int>(cluster_rank()), step = 8 * p.slices;
  for (int token = first; token < p.tokens; token += step) join(p, sums, token / 2);
  cluster_arrive();  // has read the others
  named_barrier(1, kConsumers);
  for (int token = first; token < p.tokens; token += step) write_tokens<Out, kKind>(p, sums, tile, token);
  cluster_wait();
}

template <typename T, typename Out, int kTokens, ProductKind kKind>
__global__ void __launch_bounds__(kThreads, kBlocksPerSM)
    tile_kernel(const TileParams p, const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map) {
  constexpr bool kGated = kKind == ProductKind::kGated;
  constexpr int kEach = kTokens / 2;
  extern __shared__ __align__(1024) uint8_t shared[];
  auto* head = reinterpret_cast<SharedHead*>(shared);
  uint8_t* ring = shared + sizeof(SharedHead);
  auto* sums = reinterpret_cast<float*>(p.exchange_in_ring ? ring : ring + p.stages * kStageBytes<kTokens>);
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.stages; ++s) {
      init_barrier(&head->full[s], 1);
      init_barrier(&head->empty[s], kWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  let_next_start();
  const Share share = share_of(p);
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) produce<kTokens, kGated>(p, &w_map, &x_map, head, ring, share);
    return;
  }
  wait_for_previous();
  RingPosition next;
  for (int tile = share.first; tile < p.tiles; tile += share.step) {
    // The FP8 units add with about 14 bits: what they sum up is taken over into float32 after each piece.
    constexpr bool kNarrowSums = std::is_same_v<T, fp8>;
    float acc[kEach] = {};
    for (int piece = share.begin; piece < share.end; ++piece, next.advance(p.stages)) {
      float scale = 1.0f;
      if (kNarrowSums && p.block_scaled) {
        const int group = threadIdx.x / 128, row = kGated ? group * (p.rows / 2) + tile * kGroupRows : tile * kRows;
        scale = p.w_scales[row / static_cast<int>(kScaleBlock) * p.pieces + piece];
      }
      wait_phase(&head->full[next.stage], next.parity);
      const uint8_t* stage = ring + next.stage * kStageBytes<kTokens>;
      const uint64_t a = describe(stage + threadIdx.x / 128 * (kGroupRows * kPieceBytes)), b = describe(stage + kWeightBytes);
      if constexpr (kNarrowSums) {
        float narrow[kEach];
        begin_multiply();
#pragma unroll
        for (int k = 0; k < kPieceBytes / 32; ++k) multiply<T>(narrow, a + 2 * k, b + 2 * k, k > 0);
        end_multiply();
#pragma unroll
        for (int i = 0; i < kEach; ++i) acc[i] += scale * narrow[i];
      } else {
        begin_multiply();
#pragma unroll
        for (int k = 0; k < kPieceBytes / 32; ++k) multiply<T>(acc, a + 2 * k, b + 2 * k, true);
        end_multiply();
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(&head->empty[next.stage]);
    }
    finish_tile<Out, kKind, kTokens>(p, sums, tile, acc);
  }
}

// How many blocks share a tile: as few as give almost every multiprocessor one, and only where all tiles are worked on at
// once. The same at every number of tokens.
int slices_of(const Context& ctx, int tiles, int pieces) {
  int slices = 1;
  while (slices < std::min(kMaxSlices, pieces) && 10 * tiles * slices < 9 * ctx.cuda->num_sms() &&
         tiles * (slices + 1) <= kBlocksPerSM * ctx.cuda->num_sms()) {
    ++slices;
  }
  return slices;
}

template <typename T, typename Out, int kTokens>
void launch_tile(const Context& ctx, const LinearCall& call, TileParams& p, const CUtensorMap& w_map, const CUtensorMap& x_map) {
  p.slices = slices_of(ctx, p.tiles, p.pieces);
  const int most = kBlocksPerSM * ctx.cuda->num_sms(), rounds = (p.tiles * p.slices + most - 1) / most;
  const int clusters = (p.tiles + rounds - 1) / rounds;  // as many as end together
  p.exchange_in_ring = rounds == 1;
  constexpr size_t kReserved = 1024;  // shared memory that each block costs beside its own
  const size_t exchange = p.exchange_in_ring ? 0 : sizeof(float) * kRows * kTokens;
  const size_t room = (ctx.cuda->shared_memory() + kReserved) / kBlocksPerSM - kReserved - sizeof(SharedHead) - exchange;
  p.stages = std::min(kMaxStages, static_cast<int>(room / kStageBytes<kTokens>));
  const size_t bytes = sizeof(SharedHead) + static_cast<size_t>(p.stages) * kStageBytes<kTokens> + exchange;
  const auto go = [&](auto kernel) {
    launch_placed(ctx, {.cluster = static_cast<unsigned>(p.slices)}, kernel, dim3(static_cast<unsigned>(clusters * p.slices)), dim3(kThreads), bytes, p, w_map, x_map);
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
  if (call.norm_weight != nullptr) return false;
  if (call.dtype != DType::kF8E4M3 && call.out_type != call.x_type && call.out_type != DType::kF32) return false;
  if ((call.gated || call.rope != nullptr) && call.out_type == DType::kF32) return false;
  if (call.rope != nullptr && (kRows % call.rope->head_dim != 0 || call.rope->head_dim % 16 != 0)) return false;
  if (call.block_scaled && call.gated && call.rows / 2 % kScaleBlock != 0) return false;
  const auto element = static_cast<int64_t>(dtype_bytes(call.dtype, 1));
  const auto bits = reinterpret_cast<uintptr_t>(call.w) | reinterpret_cast<uintptr_t>(call.x) |
                    static_cast<uintptr_t>(call.k * element) | static_cast<uintptr_t>(call.x_stride * element);
  return bits % 16 == 0 && call.rows < (int64_t{1} << 30);
}

void linear_tile(const Context& ctx, const LinearCall& call) {
  const auto element = static_cast<int64_t>(dtype_bytes(call.dtype, 1));
  const int64_t row_bytes = call.k * element;
  const auto features = static_cast<int>(call.gated ? call.rows / 2 : call.rows);
  const int tiles = call.gated ? (features + kGroupRows - 1) / kGroupRows : (features + kRows - 1) / kRows;
  TileParams p{};
  p.rows = static_cast<int>(call.rows);
  p.tokens = static_cast<int>(call.num_tokens);
  p.pieces = static_cast<int>((row_bytes + kPieceBytes - 1) / kPieceBytes);
  p.tiles = tiles;
  p.bias = call.bias;
  p.w_scales = call.w_scales;
  p.x_scales = call.x_scales;
  p.block_scaled = call.block_scaled;
  p.add = call.add;
  p.fresh = call.fresh;
  p.out = call.out;
  p.out_stride = call.out_stride;
  if (call.rope != nullptr) p.rope = *call.rope;
  const int tokens = call.num_tokens > 32 ? 64 : call.num_tokens > 16 ? 32 : call.num_tokens > 8 ? 16 : 8;
  const CUtensorMap w_map = ctx.cuda->tensor_map(call.w, call.rows, row_bytes, row_bytes, call.gated ? kGroupRows : kRows);
  const CUtensorMap x_map = ctx.cuda->tensor_map(call.x, call.num_tokens, row_bytes, call.x_stride * element, tokens);
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
