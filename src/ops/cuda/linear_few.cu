// Products with one or two tokens: the weights' bytes are the cost. Eight warps take a tile of 16 weight rows, each a share of
// k; every lane keeps 8 or 16 loads of 16 bytes on their way straight into registers, where the matrix units want them, and
// asks for the next as it multiplies. A block needs little shared memory, so those of the next kernel take the places of these
// as they end: their first weights are asked for before the previous kernel's results are waited for. Norms before and
// additions, gates, rotation and cache writes after the product are done in place (few_tokens.cuh, small_write.cuh): each
// spares a kernel.
//
//   tile: 16 rows. In a product of pairs the first 8 are of one half (the gate, the first half of a head), the others of
//         the other
//   step: 256 or 512 bytes of each row for each warp, 2 or 4 KB of each row in all
//
// Loads take whole lines of 128 bytes, eight lanes each, as what is on its way takes whole lines of the L1. So a lane has one
// half or the other of a row's line, and the matrix instruction's 8 rows are 4 rows x 2 halves. Its 8 columns are 4 tokens x 2
// halves: of the products of rows and tokens those of equal halves count.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/bulk.cuh"
#include "ops/cuda/dispatch.h"
#include "ops/cuda/few_tokens.cuh"
#include "ops/cuda/small_product.cuh"
#include "ops/cuda/small_write.cuh"
#include "ops/cuda/sum_over_ranks.cuh"

namespace tutti::cuda {
namespace {

constexpr int kRows = 16;  // weight rows of a tile
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kLineBytes = 128;
constexpr int kTokens = 4;              // that the matrix unit takes
constexpr int kSums = kRows * kTokens;  // of a tile

// kLines: of a row and a warp, in a step: 2 or 4.
template <int kLines>
constexpr int kWarpBytes = kLines * kLineBytes;
template <int kLines>
constexpr int kStepBytes = kWarps * kWarpBytes<kLines>;
template <int kLines>
constexpr int kBlocksPerSM = kLines == 2 ? 3 : 2;  // that registers leave room for
// Of a lane's 2 * kLines pairs of loads so many are asked for before the previous kernel ends. All; but what waits in the memory's
// queue also holds up that kernel's last writes, and the one before a gated product is short.
template <ProductKind kKind, int kLines>
constexpr int kEarlyPairs = kKind == ProductKind::kGated && kLines == 4 ? 5 : 2 * kLines;

struct FewParams {
  SmallTokens tokens;
  SmallOutput output;
  const uint8_t* w;
  int row_bytes;
  const float* block_scales;  // FP8 with a scale for each block of weights
  int tiles;
  bool fresh;
  NextWeight next;
  int next_every;  // of its rows one in so many is brought into the L2; 0: none
};

struct SharedHead {
  float squares[kFewTokens][kWarps];  // of the tokens, each warp's share
  alignas(16) float sums[2][kWarps][kSums];
};

// 16 bytes that are read once, or what `v` was.
__device__ __forceinline__ void load_weights(uint4& v, const uint8_t* p, bool valid) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %5, 0;\n"
      "@p ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
      : "l"(p), "r"(static_cast<int>(valid)));
}

// A tile's first row. The last tile begins early enough to be whole.
template <ProductKind kKind>
__device__ __forceinline__ int first_row(const SmallOutput& o, int tile) {
  if constexpr (kKind == ProductKind::kPlain) return min(tile * kRows, o.rows - kRows);
  if constexpr (kKind == ProductKind::kGated) return min(tile * (kRows / 2), o.rows / 2 - kRows / 2);
  const int half = o.rope.head_dim / 2;
  return tile / (half / (kRows / 2)) * o.rope.head_dim + tile % (half / (kRows / 2)) * (kRows / 2);
}

// What a lane has on its way: of each line 16 bytes of rows lane / 8 and 4, 8, 12 further.
template <ProductKind kKind, int kLines>
struct Units {
  uint4 of[kLines][4] = {};
  const uint8_t* row;  // this lane's part of row lane / 8
  int64_t to_lower;    // and from there to that of row 8 + lane / 8

  __device__ __forceinline__ void go_to(const FewParams& p, int tile) {
    const int lane = threadIdx.x % 32, at = static_cast<int>(threadIdx.x) / 32 * kWarpBytes<kLines> + lane % 8 * 16;
    row = p.w + static_cast<int64_t>(first_row<kKind>(p.output, tile) + lane / 8) * p.row_bytes + at;
  }
  // A line of the step that begins `in_row` bytes into the rows, for the upper or the lower 8 of them. Of a row `left` bytes are
  // this lane's; beyond them it keeps what it had, of the same rows, as tokens are zeros there.
  __device__ __forceinline__ void bring(const FewParams& p, int line, int half, int in_row, int left) {
    const int at = in_row + line * kLineBytes;
#pragma unroll
    for (int i = 0; i < 2; ++i) load_weights(of[line][2 * half + i], row + at + i * (4 * p.row_bytes) + (half == 0 ? 0 : to_lower), at < left);
  }
};

// The scale of the upper or the lower 8 rows of a tile, `in_row` bytes into them; of the last block beyond their end.
template <ProductKind kKind>
__device__ __forceinline__ float block_scale(const FewParams& p, int first, int half, int in_row) {
  const int row = first + half * (kKind == ProductKind::kPlain ? kRows / 2 : partner<kKind>(p.output));
  const int blocks = (p.row_bytes + kLineBytes - 1) / kLineBytes;
  return p.block_scales[row / kLineBytes * blocks + min(in_row / kLineBytes, blocks - 1)];
}

// Where in a tile a thread finishes sums.
template <ProductKind kKind>
struct Place {
  int token = threadIdx.x % kTokens;
  int in_tile = threadIdx.x / kTokens;

  __device__ __forceinline__ int row(const SmallOutput& o, int tile) const { return first_row<kKind>(o, tile) + in_tile; }
  // Rows of the last tile may be the previous one's, too.
  __device__ __forceinline__ bool writes(const FewParams& p, int tile) const {
    const int begin = kKind == ProductKind::kPlain ? tile * kRows : kKind == ProductKind::kGated ? tile * (kRows / 2) : 0;
    return threadIdx.x < kSums / kSumsOf<kKind> && token < p.tokens.count && row(p.output, tile) >= begin;
  }
};

// The rest of this block's tiles, all of which it has given to the other ranks.
template <typename Out>
__device__ void finish_over_ranks(const FewParams& p, const IpcGroup& ranks, uint32_t epoch) {
  if (threadIdx.x == kThreads - 1) cuda_ipc::count_block(ranks);
  const Place<ProductKind::kPlain> place;
  for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    if (!place.writes(p, tile)) continue;
    const int row = place.row(p.output, tile);
    Out* to = static_cast<Out*>(p.output.out) + place.token * p.output.stride + row;
    const float before = to_float(*to);
    float sum;
    if (!take_sum(ranks, epoch, static_cast<int64_t>(place.token) * p.output.rows + row, sum)) return;
    *to = from_float<Out>(before + sum);
  }
}

template <typename T, typename X, typename Out, ProductKind kKind, bool kBlockScaled, bool kOverRanks, int kLines>
__global__ void __launch_bounds__(kThreads, kBlocksPerSM<kLines>) few_kernel(const FewParams p, const __grid_constant__ IpcGroup ranks) {
  static_assert(kKind == ProductKind::kPlain || !kOverRanks);
  using Staging = FewStaging<T, X, kWarps, kWarpBytes<kLines> / sizeof(T)>;
  constexpr int kEach = kSumsOf<kKind>, kSummers = kSums / kEach;
  constexpr bool kScaled = Staging::kScaled;
  constexpr int kLinesOfRound = Staging::kRound * sizeof(T) / kLineBytes;
  constexpr int kLinesOfPart = kBlockScaled ? 1 : std::min(kLinesOfRound, kLines);  // with one scale
  extern __shared__ __align__(128) uint8_t shared[];
  auto* head = reinterpret_cast<SharedHead*>(shared);
  uint8_t* xs = shared + sizeof(SharedHead);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  const int left = p.row_bytes - warp * kWarpBytes<kLines> - lane % 8 * 16;

  if (p.fresh) wait_for_previous();
  Units<kKind, kLines> units;
  units.to_lower = static_cast<int64_t>(kKind == ProductKind::kPlain ? kRows / 2 : partner<kKind>(p.output)) * p.row_bytes;
  units.go_to(p, blockIdx.x);
#pragma unroll
  for (int i = 0; i < kEarlyPairs<kKind, kLines>; ++i) units.bring(p, i / 2, i % 2, 0, left);
  let_next_start();
  if (p.next_every > 0 && warp == 0) {
    for (int row = (lane * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)) * p.next_every; row < p.next.rows;
         row += 32 * static_cast<int>(gridDim.x) * p.next_every) {
      bulk_prefetch(static_cast<const uint8_t*>(p.next.w) + row * p.next.row_bytes, static_cast<uint32_t>(p.next.row_bytes));
    }
  }
  const int steps_bytes = (p.row_bytes + kStepBytes<kLines> - 1) / kStepBytes<kLines> * kStepBytes<kLines>;
  const int rounds = (steps_bytes / kStepBytes<kLines> * kLines + kLinesOfRound - 1) / kLinesOfRound;
  const int x_stride = rounds * (Staging::kRound * kWarps * 2) + pad_of(kWiden<T>, p.tokens.count);
  auto* scales = reinterpret_cast<float*>(xs + p.tokens.count * x_stride);
  const bool normed = p.tokens.norm_weight != nullptr;
  uint32_t epoch = 0;
  {
    Staging staging;
    if (normed) staging.expect(p.tokens, 0, warp);
    wait_for_previous();
    if constexpr (kOverRanks) epoch = cuda_ipc::read_epoch(ranks);
#pragma unroll 1
    for (int token = 0; token < p.tokens.count; ++token) {
      uint8_t* to = xs + token * x_stride;
      float* to_scales = scales + token * rounds * kWarps;
      if (normed) staging.template stage<true>(p.tokens, token, rounds, warp, to, to_scales, head->squares[token]);
      else staging.template stage<false>(p.tokens, token, rounds, warp, to, to_scales, head->squares[token]);
    }
    __syncwarp();
  }
#pragma unroll
  for (int i = kEarlyPairs<kKind, kLines>; i < 2 * kLines; ++i) units.bring(p, i / 2, i % 2, 0, left);
  scales += min(member, p.tokens.count - 1) * rounds * kWarps + warp;
  float norm_factor = 0;  // not known yet
  // A lane's columns are one half of a token's lines.
  const bool has_token = group / 2 < p.tokens.count;
  const uint8_t* x_at = xs + group / 2 * x_stride + (warp * kWarpBytes<kLines> + lane % 8 * 16) * kWiden<T>;
  const Place<kKind> place;
  const int token = place.token;
  int buffer = 0;
  for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x, buffer ^= 1) {
    [[maybe_unused]] const int first = first_row<kKind>(p.output, tile);
    const int row = place.row(p.output, tile);
    const bool writes = place.writes(p, tile);
    Finish<X, Out, kKind> finish;
    if (writes) finish.expect(p.output, token, row);
    float acc[2][4] = {};
#pragma unroll 1
    for (int in_row = 0; in_row < steps_bytes; in_row += kStepBytes<kLines>) {
      int next = in_row + kStepBytes<kLines>;
      if (next >= steps_bytes) {
        next = tile + static_cast<int>(gridDim.x) < p.tiles ? 0 : left;  // then nothing is brought any more
        if (next == 0) units.go_to(p, tile + static_cast<int>(gridDim.x));
      }
      [[maybe_unused]] float part[2][4];
#pragma unroll
      for (int line = 0; line < kLines; ++line) {
        const int at = in_row + line * kLineBytes;
        uint4 x[kWiden<T>];
#pragma unroll
        for (int i = 0; i < kWiden<T>; ++i) x[i] = has_token ? load_shared(x_at + at * kWiden<T> + 16 * i) : make_uint4(0, 0, 0, 0);
        if (kScaled && line % kLinesOfPart == 0) {
#pragma unroll
          for (int s = 0; s < 2; ++s) part[s][0] = part[s][1] = part[s][2] = part[s][3] = 0;
        }
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          multiply_unit<T>(kScaled ? part[s] : acc[s], units.of[line][2 * s], units.of[line][2 * s + 1], x);
          units.bring(p, line, s, next, left);
        }
        if (kScaled && (line + 1) % kLinesOfPart == 0) {
          const float scale = scales[(in_row / kLineBytes / kWarps + line) / kLinesOfRound * kWarps];
#pragma unroll
          for (int s = 0; s < 2; ++s) {
            const float all = kBlockScaled ? scale * block_scale<kKind>(p, first, s, at + warp * kWarpBytes<kLines>) : scale;
            // Of a lane's results those of its own half.
#pragma unroll
            for (int i = 0; i < 2; ++i) acc[s][2 * i] += all * (group % 2 == 0 ? part[s][2 * i] : part[s][2 * i + 1]);
          }
        }
      }
    }
    // And the same of the lane that has the other half.
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum = kScaled || group % 2 == 0 ? acc[s][2 * i] : acc[s][2 * i + 1];
        sum += __shfl_xor_sync(kAllLanes, sum, 4);
        if (group % 2 == s) head->sums[buffer][warp][(8 * s + 4 * i + group / 2) * kTokens + member] = sum;
      }
    }
    named_barrier(1, kThreads);  // two buffers: the other one was read before this point
    if (!writes) continue;
    float sum[kEach] = {};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) sum[i] += head->sums[buffer][w][threadIdx.x + i * kSummers];
    }
    if (normed) {
      if (norm_factor == 0) {
        float squares = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) squares += head->squares[token][w];
        norm_factor = rsqrtf(squares / static_cast<float>(p.tokens.k) + p.tokens.eps);
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) sum[i] *= norm_factor;
    }
    if constexpr (kOverRanks) give(ranks, epoch, static_cast<int64_t>(token) * p.output.rows + row, finish.first_of(sum));
    else finish.write(p.output, token, row, sum);
  }
  if constexpr (kOverRanks) finish_over_ranks<Out>(p, ranks, epoch);
}

// While attention is waited for, the memory idles where this weight is small: then about kBrought bytes of the next one come into
// the L2. Rows all over it: its blocks meet them one by one, beside what the memory brings, which all at once would wait for.
int next_every(const LinearCall& call) {
  constexpr int64_t kSmall = int64_t{40} << 20, kBrought = int64_t{8} << 20, kFewest = 16;
  const int64_t own = call.rows * static_cast<int64_t>(dtype_bytes(call.dtype, call.k)), bytes = call.next.rows * call.next.row_bytes;
  if (call.next.w == nullptr || own > kSmall || call.next.row_bytes % 16 != 0) return 0;
  return static_cast<int>(std::max(kFewest, bytes / kBrought));
}

// Enough for either number of lines.
size_t shared_bytes(const LinearCall& call) {
  constexpr int kRoundBytes = 4096;  // of tokens, of all warps
  const int widen = call.dtype == DType::kF8E4M3 ? kWiden<fp8> : 1;
  const auto row_bytes = static_cast<int>(dtype_bytes(call.dtype, call.k)), tokens = static_cast<int>(call.num_tokens);
  const int rounds = (row_bytes + kStepBytes<4> - 1) / kStepBytes<4> * widen;
  return sizeof(SharedHead) + static_cast<size_t>(tokens) * (static_cast<size_t>(rounds) * (kRoundBytes + kWarps * sizeof(float)) + static_cast<size_t>(pad_of(widen, tokens)));
}

int tiles_of(const LinearCall& call) {
  const auto rows = static_cast<int>(call.rows);
  return call.gated || call.rope != nullptr ? (rows / 2 + kRows / 2 - 1) / (kRows / 2) : (rows + kRows - 1) / kRows;
}

template <typename T, typename X, int kLines>
void launch_few(const Context& ctx, const LinearCall& call, const FewParams& p) {
  constexpr size_t kReserved = 1024;  // shared memory that each block costs beside its own
  const size_t bytes = shared_bytes(call);
  // Found by trying, on an H200: FP8 rows are short, so blocks want more of them. What shared memory leaves is the L1, which
  // loads on their way need.
  const int per_sm = sizeof(T) == 1 ? kBlocksPerSM<kLines> : 8;
  const size_t all = ctx.cuda->shared_memory() + kReserved, wanted = (100 * kBlocksPerSM<kLines> * (bytes + kReserved) + all - 1) / all;
  const int shared_percent = call.num_tokens == 1 ? std::clamp(static_cast<int>(wanted), 40, 100) : 58;
  // Blocks that wait for other ranks are on the GPU together.
  const auto room = static_cast<int>(all * static_cast<size_t>(shared_percent) / 100 / (bytes + kReserved));
  const int most = call.ranks == nullptr ? per_sm : std::clamp(room, 1, kBlocksPerSM<kLines>);
  const auto grid = static_cast<unsigned>(std::min(p.tiles, most * ctx.cuda->num_sms()));
  const IpcGroup ranks = call.ranks != nullptr ? *call.ranks : IpcGroup{};
  const auto go = [&](auto kernel) { launch_placed(ctx, {.shared_percent = shared_percent}, kernel, dim3(grid), dim3(kThreads), bytes, p, ranks); };
  const auto by_kind = [&]<bool kBlockScaled>() {
    if (call.ranks != nullptr) go(few_kernel<T, X, X, ProductKind::kPlain, kBlockScaled, true, kLines>);
    else if (call.gated) go(few_kernel<T, X, X, ProductKind::kGated, kBlockScaled, false, kLines>);
    else if (call.rope != nullptr) go(few_kernel<T, X, X, ProductKind::kRotated, kBlockScaled, false, kLines>);
    else if (call.out_type == DType::kF32) go(few_kernel<T, X, float, ProductKind::kPlain, kBlockScaled, false, kLines>);
    else go(few_kernel<T, X, X, ProductKind::kPlain, kBlockScaled, false, kLines>);
  };
  if constexpr (sizeof(T) == 1 && kLines == 4) {
    if (call.block_scaled) return by_kind.template operator()<true>();
  }
  by_kind.template operator()<false>();
}

}  // namespace

bool linear_few_can(const Context& ctx, const LinearCall& call) {
  // The other kernel cuts k over blocks where tiles are too few to occupy the GPU.
  return call.num_tokens <= kFewTokens && linear_small_can(ctx, call) && call.rows >= 2 * kRows && 4 * tiles_of(call) >= ctx.cuda->num_sms() &&
         shared_bytes(call) <= ctx.cuda->shared_memory() / 2;
}

void linear_few(const Context& ctx, const LinearCall& call) {
  FewParams p{};
  p.tokens = {call.x, call.x_stride, static_cast<int>(call.num_tokens), static_cast<int>(call.k), call.norm_weight, call.eps};
  p.output = {call.bias, call.block_scaled ? nullptr : call.w_scales, call.out, call.out_stride, static_cast<int>(call.rows), call.add && call.ranks == nullptr,
              call.rope != nullptr ? *call.rope : RopeWrite{}};
  p.w = static_cast<const uint8_t*>(call.w);
  p.row_bytes = static_cast<int>(dtype_bytes(call.dtype, call.k));
  p.block_scales = call.block_scaled ? call.w_scales : nullptr;
  p.tiles = tiles_of(call);
  p.fresh = call.fresh;
  p.next = call.next;
  p.next_every = next_every(call);
  // More on its way before the previous kernel ends, unless that keeps tiles waiting which all fit at once with less. The scales
  // of blocks leave no registers for three blocks.
  const bool deep = call.block_scaled || p.tiles <= kBlocksPerSM<4> * ctx.cuda->num_sms() || p.tiles > kBlocksPerSM<2> * ctx.cuda->num_sms();
  by_activation(call.x_type, [&](auto type) {
    using X = typename decltype(type)::type;
    const auto go = [&]<typename T>() { deep ? launch_few<T, X, 4>(ctx, call, p) : launch_few<T, X, 2>(ctx, call, p); };
    if (call.dtype == DType::kF8E4M3) go.template operator()<fp8>();
    else go.template operator()<X>();
  });
}

}  // namespace tutti::cuda
