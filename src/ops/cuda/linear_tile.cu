// Products of up to 64 tokens on Hopper: still bound by the weights' bytes, but with too many tokens for linear_small.cu.
// A block takes tiles of 128 weight rows against all tokens. One thread has the bulk copy engine bring pieces of 128 bytes
// of k of the rows and of the tokens into a ring; two warpgroups multiply 64 rows each with the asynchronous matrix
// instructions, weights as the left side, so that 8, 16 or 32 tokens cost as little as they are. Gates, additions, rotation
// and cache writes happen where a tile's sums are (small_write.cuh).
//
// Work is dealt evenly (stream-K): all pieces of all tiles stand in one line and every block takes an equal part of it. A
// tile that lies in several parts is added up by the block that finishes last, always in the same order.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/bulk.cuh"
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

struct TileParams {
  int rows;
  int tokens;
  int pieces;       // of a row
  int64_t total;    // pieces of all tiles
  const float* bias;
  const float* w_scales;
  const float* x_scales;
  bool block_scaled;
  bool add;
  bool fresh;
  void* out;
  int64_t out_stride;
  int stages;
  float* partial;      // [blocks, 2, kTokens / 2, kConsumers]: a block's first and last tile
  unsigned* arrivals;  // [tiles]
  RopeWrite rope;
};

// A block works on kTokens tokens, in instructions of kColumns. A thread has kTokens / 2 of a tile's sums.
template <int kTokens>
constexpr int kColumns = kTokens < 32 ? kTokens : 32;
template <int kTokens>
constexpr int kTokenBytes = kTokens * kPieceBytes;
template <int kTokens>
constexpr int kStageBytes = kWeightBytes + kTokenBytes<kTokens>;

struct alignas(1024) SharedHead {  // the ring behind it starts where a swizzle pattern does
  Barrier full[kMaxStages];
  Barrier empty[kMaxStages];
  unsigned last;
};

// The first piece of a block, and the block of a piece.
__device__ __forceinline__ int64_t first_piece(const TileParams& p, int64_t block) { return block * p.total / gridDim.x; }
__device__ __forceinline__ int block_of(const TileParams& p, int64_t piece) {
  return static_cast<int>(((piece + 1) * gridDim.x - 1) / p.total);
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
#define TUTTI_WGMMA_OF(k, types, rest)                        \
  if constexpr (kSums == 4) TUTTI_WGMMA_8(k, types, rest);    \
  else if constexpr (kSums == 8) TUTTI_WGMMA_16(k, types, rest); \
  else TUTTI_WGMMA_32(k, types, rest)

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
__device__ void produce(const TileParams& p, const CUtensorMap* w_map, const CUtensorMap* x_map, SharedHead* head, uint8_t* ring,
                        int64_t begin, int64_t end) {
  const uint64_t policy = evict_first();
  const auto bring_weights = [&](int64_t piece, int stage) {
    const int tile = static_cast<int>(piece / p.pieces), column = static_cast<int>(piece % p.pieces) * kPieceBytes;
    uint8_t* to = ring + stage * kStageBytes<kTokens>;
    arrive_expect(&head->full[stage], kStageBytes<kTokens>);
    if (kGated) {
      tensor_copy(to, w_map, column, tile * kGroupRows, &head->full[stage], policy);
      tensor_copy(to + kWeightBytes / 2, w_map, column, p.rows / 2 + tile * kGroupRows, &head->full[stage], policy);
    } else {
      tensor_copy(to, w_map, column, tile * kRows, &head->full[stage], policy);
    }
  };
  const auto bring_tokens = [&](int64_t piece, int stage) {
    tensor_copy(ring + stage * kStageBytes<kTokens> + kWeightBytes, x_map, static_cast<int>(piece % p.pieces) * kPieceBytes, 0, &head->full[stage]);
  };
  if (p.fresh) wait_for_previous();
  const int64_t ahead = min(end, begin + p.stages);
  for (int64_t piece = begin; piece < ahead; ++piece) bring_weights(piece, static_cast<int>(piece - begin));
  wait_for_previous();
  for (int64_t piece = begin; piece < ahead; ++piece) bring_tokens(piece, static_cast<int>(piece - begin));
  RingPosition at{0, 1};
  for (int64_t piece = ahead; piece < end; ++piece, at.advance(p.stages)) {
    wait_phase(&head->empty[at.stage], at.parity ^ 1);
    bring_weights(piece, at.stage);
    bring_tokens(piece, at.stage);
  }
}

// Adds up the parts of a tile that lies in several blocks. True in the block that arrived last.
template <int kEach>
__device__ bool join(const TileParams& p, SharedHead* head, int tile, bool is_first_of_block, float (&acc)[kEach]) {
  constexpr int64_t kSlot = int64_t{kEach} * kConsumers;
  const auto slot = [&](int64_t block, bool first) { return p.partial + (2 * block + (first ? 0 : 1)) * kSlot + threadIdx.x; };
  float* mine = slot(blockIdx.x, is_first_of_block);
#pragma unroll
  for (int i = 0; i < kEach; ++i) mine[i * kConsumers] = acc[i];
  const int from = block_of(p, int64_t{tile} * p.pieces), to = block_of(p, int64_t{tile + 1} * p.pieces - 1);
  __threadfence();
  named_barrier(1, kConsumers);
  if (threadIdx.x == 0) {
    head->last = atomicAdd(&p.arrivals[tile], 1u) == static_cast<unsigned>(to - from);
    if (head->last) p.arrivals[tile] = 0;
    __threadfence();
  }
  named_barrier(1, kConsumers);
  if (!head->last) return false;
#pragma unroll
  for (int i = 0; i < kEach; ++i) acc[i] = 0;
  constexpr int kAtOnce = 2;  // parts on their way together
  for (int block = from; block <= to; block += kAtOnce) {
    float part[kAtOnce][kEach];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const float* at = slot(block + j, first_piece(p, block + j) / p.pieces == tile);
#pragma unroll
      for (int i = 0; i < kEach; ++i) part[j][i] = block + j <= to ? __ldcg(at + i * kConsumers) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) acc[i] += part[j][i];
    }
  }
  return true;
}

// What a sum becomes that belongs to row `at` of the weight.
__device__ __forceinline__ float finished(const TileParams& p, float value, int at, int token) {
  if (p.w_scales != nullptr) value *= p.block_scaled ? p.x_scales[token] : p.w_scales[at] * p.x_scales[token];
  return p.bias == nullptr ? value : value + p.bias[at];
}

// The thread's sums, value i: row warp * 16 + lane / 4 + 8 * (i / 2 % 2) of its warpgroup's 64, token i / 4 * 8 + lane % 4 * 2 + i % 2.
__device__ __forceinline__ int row_of(int i) { return threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8; }
__device__ __forceinline__ int token_of(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

template <typename Out, bool kGated, int kEach>
__device__ void write_tile(const TileParams& p, float* exchange, int tile, float (&acc)[kEach]) {
  const int group = threadIdx.x / 128, in_group = threadIdx.x % 128;
  const int features = kGated ? p.rows / 2 : p.rows;
  if constexpr (kGated) {
    named_barrier(1, kConsumers);  // the exchange of the tile before has been read
    if (group == 1) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) exchange[i * 128 + in_group] = acc[i];
    }
    named_barrier(1, kConsumers);
    if (group == 1) return;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int token = token_of(i);
    const int feature = kGated ? tile * kGroupRows + row_of(i) : tile * kRows + group * kGroupRows + row_of(i);
    if (token >= p.tokens || feature >= features) continue;
    float value = finished(p, acc[i], feature, token);
    if constexpr (kGated) value = silu(value) * finished(p, exchange[i * 128 + in_group], features + feature, token);
    Out* to = static_cast<Out*>(p.out) + token * p.out_stride + feature;
    *to = from_float<Out>(p.add ? to_float(*to) + value : value);
  }
}

// A row of the exchange for pairs: odd, so that the rows of a column lie in different banks.
constexpr int exchange_stride(int tokens) { return tokens + 1; }

// Of q, k and v: a tile has whole heads.
template <typename X, int kEach>
__device__ void write_rotated_tile(const TileParams& p, float* exchange, int tile, float (&acc)[kEach]) {
  constexpr int kStride = exchange_stride(2 * kEach), kPairs = kRows / 2;
  const int group = threadIdx.x / 128;
  named_barrier(1, kConsumers);  // the exchange of the tile before has been read
#pragma unroll
  for (int i = 0; i < kEach; ++i) exchange[(group * kGroupRows + row_of(i)) * kStride + token_of(i)] = acc[i];
  named_barrier(1, kConsumers);
  const int half = p.rope.head_dim / 2, pair = threadIdx.x % kPairs, in_tile = pair / half * p.rope.head_dim + pair % half;
  const int row = tile * kRows + in_tile;
  if (row >= p.rows) return;
  for (int token = threadIdx.x / kPairs; token < p.tokens; token += kConsumers / kPairs) {
    const float* angle = p.rope.cos_sin + static_cast<int64_t>(p.rope.positions[token]) * p.rope.head_dim + pair % half;
    write_rotated<X>(p.rope, static_cast<X*>(p.out) + token * p.out_stride, row, p.rope.slots[token],
                     finished(p, exchange[in_tile * kStride + token], row, token),
                     finished(p, exchange[(in_tile + half) * kStride + token], row + half, token), angle[0], angle[half]);
  }
}

// Two where the tokens leave room: one multiplies while the other waits, and the next kernel's fill their rings as these end.
template <int kTokens>
constexpr int kBlocksPerSM = kTokens <= 32 ? 2 : 1;

template <typename T, typename Out, int kTokens, ProductKind kKind>
__global__ void __launch_bounds__(kThreads, kBlocksPerSM<kTokens>)
    tile_kernel(const TileParams p, const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map) {
  constexpr bool kGated = kKind == ProductKind::kGated;
  constexpr int kEach = kTokens / 2, kOfOne = kColumns<kTokens> / 2;  // sums of a thread, and of one instruction
  extern __shared__ __align__(1024) uint8_t shared[];
  auto* head = reinterpret_cast<SharedHead*>(shared);
  uint8_t* ring = shared + sizeof(SharedHead);
  auto* exchange = reinterpret_cast<float*>(ring + p.stages * kStageBytes<kTokens>);
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.stages; ++s) {
      init_barrier(&head->full[s], 1);
      init_barrier(&head->empty[s], kWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  let_next_start();
  const int64_t begin = first_piece(p, blockIdx.x), end = first_piece(p, blockIdx.x + 1);
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) produce<kTokens, kGated>(p, &w_map, &x_map, head, ring, begin, end);
    return;
  }
  wait_for_previous();
  RingPosition next;
  for (int64_t piece = begin; piece < end;) {
    const int tile = static_cast<int>(piece / p.pieces);
    const int64_t stop = min(end, int64_t{tile + 1} * p.pieces);
    const bool whole = stop - piece == p.pieces, is_first = piece == begin;
    // The FP8 units add with about 14 bits: what they sum up is taken over into float32 after each piece.
    constexpr bool kNarrowSums = std::is_same_v<T, fp8>;
    float acc[kEach / kOfOne][kOfOne] = {};
    float narrow[kNarrowSums ? kEach / kOfOne : 1][kOfOne];
    for (; piece < stop; ++piece, next.advance(p.stages)) {
      float scale = 1.0f;
      if (kNarrowSums && p.block_scaled) {
        const int group = threadIdx.x / 128, row = kGated ? group * (p.rows / 2) + tile * kGroupRows : tile * kRows;
        scale = p.w_scales[row / static_cast<int>(kScaleBlock) * p.pieces + piece % p.pieces];
      }
      wait_phase(&head->full[next.stage], next.parity);
      const uint8_t* stage = ring + next.stage * kStageBytes<kTokens>;
      const uint64_t a = describe(stage + threadIdx.x / 128 * (kGroupRows * kPieceBytes)), b = describe(stage + kWeightBytes);
      begin_multiply();
#pragma unroll
      for (int k = 0; k < kPieceBytes / 32; ++k) {
#pragma unroll
        for (int c = 0; c < kEach / kOfOne; ++c) {
          multiply<T>(kNarrowSums ? narrow[c] : acc[c], a + 2 * k, b + 2 * k + c * (2 * kOfOne * kPieceBytes / 16), !kNarrowSums || k > 0);
        }
      }
      end_multiply();
      if constexpr (kNarrowSums) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) acc[i / kOfOne][i % kOfOne] += scale * narrow[i / kOfOne][i % kOfOne];
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(&head->empty[next.stage]);
    }
    float sums[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) sums[i] = acc[i / kOfOne][i % kOfOne];
    if (!whole && !join(p, head, tile, is_first, sums)) continue;
    if constexpr (kKind == ProductKind::kRotated) write_rotated_tile<Out>(p, exchange, tile, sums);
    else write_tile<Out, kGated>(p, exchange, tile, sums);
  }
}

template <int kTokens>
size_t exchange_bytes(const LinearCall& call) {
  if (call.rope != nullptr) return sizeof(float) * kRows * exchange_stride(kTokens);
  return call.gated ? sizeof(float) * 128 * (kTokens / 2) : 0;
}

template <typename T, typename Out, int kTokens>
void launch_tile(const Context& ctx, const LinearCall& call, TileParams& p, const CUtensorMap& w_map, const CUtensorMap& x_map, int tiles) {
  const size_t exchange = exchange_bytes<kTokens>(call);
  constexpr size_t kReserved = 1024;  // shared memory that each block costs beside its own
  const size_t room = (ctx.cuda->shared_memory() + kReserved) / kBlocksPerSM<kTokens> - kReserved - sizeof(SharedHead) - exchange;
  p.stages = std::min(kMaxStages, static_cast<int>(room / kStageBytes<kTokens>));
  // As many blocks as fit together; but the parts of a tile, hence the order of its sum, must not depend on the tokens under
  // batch invariance.
  const int64_t blocks = int64_t{ctx.cuda->batch_invariant() ? 1 : kBlocksPerSM<kTokens>} * ctx.cuda->num_sms();
  const auto grid = static_cast<unsigned>(std::min<int64_t>(blocks, (p.total + 3) / 4));
  const Scratch scratch(ctx);
  p.partial = scratch.floats(int64_t{2} * grid * (kTokens / 2) * kConsumers);
  p.arrivals = ctx.cuda->counters();
  CHECK_LE(tiles, CudaContext::kCounters);
  const size_t bytes = sizeof(SharedHead) + static_cast<size_t>(p.stages) * kStageBytes<kTokens> + exchange;
  const auto go = [&](auto kernel) { launch(ctx, kernel, dim3(grid), dim3(kThreads), bytes, p, w_map, x_map); };
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
  p.total = int64_t{tiles} * p.pieces;
  p.bias = call.bias;
  p.w_scales = call.w_scales;
  p.x_scales = call.x_scales;
  p.block_scaled = call.block_scaled;
  p.add = call.add;
  p.fresh = call.fresh;
  p.out = call.out;
  p.out_stride = call.out_stride;
  if (call.rope != nullptr) p.rope = *call.rope;
  // A batch-invariant product is the same instructions at every number of tokens.
  const int tokens = call.num_tokens > 32 ? 64 : call.num_tokens > 16 || ctx.cuda->batch_invariant() ? 32 : call.num_tokens > 8 ? 16 : 8;
  const CUtensorMap w_map = ctx.cuda->tensor_map(call.w, call.rows, row_bytes, row_bytes, call.gated ? kGroupRows : kRows);
  const CUtensorMap x_map = ctx.cuda->tensor_map(call.x, call.num_tokens, row_bytes, call.x_stride * element, tokens);
  const auto by_tokens = [&]<typename T, typename Out>() {
    if (tokens == 8) launch_tile<T, Out, 8>(ctx, call, p, w_map, x_map, tiles);
    else if (tokens == 16) launch_tile<T, Out, 16>(ctx, call, p, w_map, x_map, tiles);
    else if (tokens == 32) launch_tile<T, Out, 32>(ctx, call, p, w_map, x_map, tiles);
    else launch_tile<T, Out, 64>(ctx, call, p, w_map, x_map, tiles);
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
