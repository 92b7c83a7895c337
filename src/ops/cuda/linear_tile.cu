// Products of up to 64 tokens on Hopper: still bound by the weights' bytes, but with too many tokens for linear_small.cu.
// A block takes tiles of 128 weight rows against all tokens. One thread has the bulk copy engine bring pieces of 128 bytes
// of k of the rows and of the tokens into a ring; two warpgroups multiply 64 rows each with the asynchronous matrix
// instructions, weights as the left side, so that 32 tokens cost as little as they are.
//
// Work is dealt evenly (stream-K): all pieces of all tiles stand in one line and every block takes an equal part of it. A
// tile that lies in several parts is added up by the block that finishes last, always in the same order.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/bulk.cuh"
#include "ops/cuda/dispatch.h"
#include "ops/cuda/linear_call.h"

namespace tutti::cuda {
namespace {

constexpr int kRows = 128;  // of a tile; a gated one has 64 of the gate and the up projection's for the same features
constexpr int kGroupRows = 64;
constexpr int kPieceBytes = 128;
constexpr int kColumns = 32;  // tokens of one instruction
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
  void* out;
  int64_t out_stride;
  int stages;
  float* partial;      // [blocks, 2, kBlockColumns * 16, kConsumers]: a block's first and last tile
  unsigned* arrivals;  // [tiles]
};

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

#define TUTTI_WGMMA(shape, types, rest)                                                                                  \
  asm volatile(                                                                                                          \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"                                                                       \
      "wgmma.mma_async.sync.aligned." shape ".f32." types                                                                \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1" rest ";\n}\n"                        \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),      \
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])                         \
      : "l"(a), "l"(b), "r"(static_cast<int>(add)))

// d = a b^T (+ d): a 64 rows, b kColumns rows, 32 bytes of k of each.
template <typename T>
__device__ __forceinline__ void multiply(float (&d)[16], uint64_t a, uint64_t b, bool add) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (std::is_same_v<T, bf16>) TUTTI_WGMMA("m64n32k16", "bf16.bf16", ", 0, 0");
  else if constexpr (std::is_same_v<T, half>) TUTTI_WGMMA("m64n32k16", "f16.f16", ", 0, 0");
  else TUTTI_WGMMA("m64n32k32", "e4m3.e4m3", "");
#endif
}

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

// One thread: the block's pieces in order. Weights do not wait for the previous kernel, tokens do.
template <int kBlockColumns, bool kGated>
__device__ void produce(const TileParams& p, const CUtensorMap* w_map, const CUtensorMap* x_map, SharedHead* head, uint8_t* ring,
                        int64_t begin, int64_t end) {
  constexpr int kTokenBytes = kBlockColumns * kColumns * kPieceBytes, kStageBytes = kWeightBytes + kTokenBytes;
  const uint64_t policy = evict_first();
  const auto bring_weights = [&](int64_t piece, int stage) {
    const int tile = static_cast<int>(piece / p.pieces), column = static_cast<int>(piece % p.pieces) * kPieceBytes;
    uint8_t* to = ring + stage * kStageBytes;
    arrive_expect(&head->full[stage], kStageBytes);
    if (kGated) {
      tensor_copy(to, w_map, column, tile * kGroupRows, &head->full[stage], policy);
      tensor_copy(to + kWeightBytes / 2, w_map, column, p.rows / 2 + tile * kGroupRows, &head->full[stage], policy);
    } else {
      tensor_copy(to, w_map, column, tile * kRows, &head->full[stage], policy);
    }
  };
  const auto bring_tokens = [&](int64_t piece, int stage) {
    tensor_copy(ring + stage * kStageBytes + kWeightBytes, x_map, static_cast<int>(piece % p.pieces) * kPieceBytes, 0, &head->full[stage]);
  };
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
template <int kBlockColumns>
__device__ bool join(const TileParams& p, SharedHead* head, int tile, bool is_first_of_block, float (&acc)[kBlockColumns][16]) {
  constexpr int64_t kSlot = int64_t{kBlockColumns} * 16 * kConsumers;
  const auto slot = [&](int64_t block, bool first) { return p.partial + (2 * block + (first ? 0 : 1)) * kSlot + threadIdx.x; };
  float* mine = slot(blockIdx.x, is_first_of_block);
#pragma unroll
  for (int i = 0; i < kBlockColumns * 16; ++i) mine[i * kConsumers] = acc[i / 16][i % 16];
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
  for (int i = 0; i < kBlockColumns * 16; ++i) acc[i / 16][i % 16] = 0;
  constexpr int kAtOnce = 2;  // parts on their way together
  for (int block = from; block <= to; block += kAtOnce) {
    float part[kAtOnce][kBlockColumns * 16];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const float* at = slot(block + j, first_piece(p, block + j) / p.pieces == tile);
#pragma unroll
      for (int i = 0; i < kBlockColumns * 16; ++i) part[j][i] = block + j <= to ? __ldcg(at + i * kConsumers) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
      for (int i = 0; i < kBlockColumns * 16; ++i) acc[i / 16][i % 16] += part[j][i];
    }
  }
  return true;
}

// The thread's sums, value i: row warp * 16 + lane / 4 + 8 * (i / 2 % 2) of its warpgroup's 64, token i / 4 * 8 + lane % 4 * 2 + i % 2.
template <typename Out, int kBlockColumns, bool kGated>
__device__ void write_tile(const TileParams& p, float* exchange, int tile, float (&acc)[kBlockColumns][16]) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32, in_group = threadIdx.x % 128;
  const int row = threadIdx.x / 32 % 4 * 16 + lane / 4;
  const int features = kGated ? p.rows / 2 : p.rows;
  const auto finish = [&](float value, int at, int token) {
    if (p.w_scales != nullptr) value *= p.block_scaled ? p.x_scales[token] : p.w_scales[at] * p.x_scales[token];
    return p.bias == nullptr ? value : value + p.bias[at];
  };
  if constexpr (kGated) {
    named_barrier(1, kConsumers);  // the exchange of the tile before has been read
    if (group == 1) {
#pragma unroll
      for (int i = 0; i < kBlockColumns * 16; ++i) exchange[i * 128 + in_group] = acc[i / 16][i % 16];
    }
    named_barrier(1, kConsumers);
    if (group == 1) return;
  }
#pragma unroll
  for (int i = 0; i < kBlockColumns * 16; ++i) {
    const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
    const int feature = kGated ? tile * kGroupRows + row + i / 2 % 2 * 8 : tile * kRows + group * kGroupRows + row + i / 2 % 2 * 8;
    if (token >= p.tokens || feature >= features) continue;
    float value = finish(acc[i / 16][i % 16], feature, token);
    if constexpr (kGated) value = silu(value) * finish(exchange[i * 128 + in_group], features + feature, token);
    Out* to = static_cast<Out*>(p.out) + token * p.out_stride + feature;
    *to = from_float<Out>(p.add ? to_float(*to) + value : value);
  }
}

// Where the tokens leave room, the next kernel's blocks fill their rings beside this one's.
template <int kBlockColumns>
constexpr int kBlocksPerSM = kBlockColumns == 1 ? 2 : 1;

template <typename T, typename Out, int kBlockColumns, bool kGated>
__global__ void __launch_bounds__(kThreads, kBlocksPerSM<kBlockColumns>)
    tile_kernel(const TileParams p, const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map) {
  constexpr int kStageBytes = kWeightBytes + kBlockColumns * kColumns * kPieceBytes;
  extern __shared__ __align__(1024) uint8_t shared[];
  auto* head = reinterpret_cast<SharedHead*>(shared);
  uint8_t* ring = shared + sizeof(SharedHead);
  auto* exchange = reinterpret_cast<float*>(ring + p.stages * kStageBytes);
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
    if (threadIdx.x == kConsumers) produce<kBlockColumns, kGated>(p, &w_map, &x_map, head, ring, begin, end);
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
    float acc[kBlockColumns][16] = {};
    float narrow[kNarrowSums ? kBlockColumns : 1][16];
    for (; piece < stop; ++piece, next.advance(p.stages)) {
      float scale = 1.0f;
      if (kNarrowSums && p.block_scaled) {
        const int group = threadIdx.x / 128, row = kGated ? group * (p.rows / 2) + tile * kGroupRows : tile * kRows;
        scale = p.w_scales[row / static_cast<int>(kScaleBlock) * p.pieces + piece % p.pieces];
      }
      wait_phase(&head->full[next.stage], next.parity);
      const uint8_t* stage = ring + next.stage * kStageBytes;
      const uint64_t a = describe(stage + threadIdx.x / 128 * (kGroupRows * kPieceBytes)), b = describe(stage + kWeightBytes);
      begin_multiply();
#pragma unroll
      for (int k = 0; k < kPieceBytes / 32; ++k) {
#pragma unroll
        for (int c = 0; c < kBlockColumns; ++c) {
          multiply<T>(kNarrowSums ? narrow[c] : acc[c], a + 2 * k, b + 2 * k + c * (kColumns * kPieceBytes / 16),
                      !kNarrowSums || k > 0);
        }
      }
      end_multiply();
      if constexpr (kNarrowSums) {
#pragma unroll
        for (int i = 0; i < kBlockColumns * 16; ++i) acc[i / 16][i % 16] += scale * narrow[i / 16][i % 16];
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(&head->empty[next.stage]);
    }
    if (!whole && !join<kBlockColumns>(p, head, tile, is_first, acc)) continue;
    write_tile<Out, kBlockColumns, kGated>(p, exchange, tile, acc);
  }
}

template <typename T, typename Out, int kBlockColumns>
void launch_tile(const Context& ctx, const LinearCall& call, TileParams& p, const CUtensorMap& w_map, const CUtensorMap& x_map, int tiles) {
  constexpr int kStageBytes = kWeightBytes + kBlockColumns * kColumns * kPieceBytes;
  const size_t exchange = call.gated ? sizeof(float) * 128 * 16 * kBlockColumns : 0;
  constexpr size_t kReserved = 1024;  // shared memory that each block costs beside its own
  const size_t room = (ctx.cuda->shared_memory() + kReserved) / kBlocksPerSM<kBlockColumns> - kReserved - sizeof(SharedHead) - exchange;
  p.stages = std::min(kMaxStages, static_cast<int>(room / kStageBytes));
  const auto grid = static_cast<unsigned>(std::min<int64_t>(ctx.cuda->num_sms(), (p.total + 3) / 4));
  const Scratch scratch(ctx);
  p.partial = scratch.floats(int64_t{2} * grid * kBlockColumns * 16 * kConsumers);
  p.arrivals = ctx.cuda->counters();
  CHECK_LE(tiles, CudaContext::kCounters);
  const size_t bytes = sizeof(SharedHead) + static_cast<size_t>(p.stages) * kStageBytes + exchange;
  launch(ctx, call.gated ? tile_kernel<T, Out, kBlockColumns, true> : tile_kernel<T, Out, kBlockColumns, false>, dim3(grid),
         dim3(kThreads), bytes, p, w_map, x_map);
}

}  // namespace

bool linear_tile_can(const Context& ctx, const LinearCall& call) {
  if (ctx.cuda->capability() != 90 || call.num_tokens > kMaxTileTokens || call.dtype != call.x_type) return false;
  if (call.norm_weight != nullptr || call.rope != nullptr) return false;
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
  p.out = call.out;
  p.out_stride = call.out_stride;
  const int columns = call.num_tokens <= 32 ? 1 : 2;
  const CUtensorMap w_map = ctx.cuda->tensor_map(call.w, call.rows, row_bytes, row_bytes, call.gated ? kGroupRows : kRows);
  const CUtensorMap x_map = ctx.cuda->tensor_map(call.x, call.num_tokens, row_bytes, call.x_stride * element, columns * kColumns);
  const auto by_columns = [&]<typename T, typename Out>() {
    if (columns == 1) launch_tile<T, Out, 1>(ctx, call, p, w_map, x_map, tiles);
    else launch_tile<T, Out, 2>(ctx, call, p, w_map, x_map, tiles);
  };
  const auto by_out = [&]<typename T>() {
    by_output(call.out_type, [&](auto out) { by_columns.template operator()<T, typename decltype(out)::type>(); });
  };
  if (call.dtype == DType::kF8E4M3) by_out.template operator()<fp8>();
  else if (call.dtype == DType::kBF16) by_out.template operator()<bf16>();
  else by_out.template operator()<half>();
}

}  // namespace tutti::cuda
