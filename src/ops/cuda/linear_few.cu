// Products with one or two tokens: the weights' bytes are the cost. Eight warps take a tile of 16 or 8 weight rows, each a
// share of k; every lane keeps eight or sixteen loads of 16 bytes on their way straight into registers, where the matrix units want
// them, and asks for the next as soon as it has multiplied one. A block needs little shared memory, so those of the next kernel take
// the places of these as they end: their first weights are asked for before the previous kernel's results are waited for.
// Norms before and additions, gates, rotation and cache writes after the product are done in place (small_tokens.cuh,
// small_write.cuh): each spares a kernel.
//
//   tile: 16 or 8 rows. In a product of pairs half of them are of one half (the gate, the first half of a head), the others of
//         the other
//   step: two to eight lines of 128 bytes of each row for each warp, 2 to 8 KB of each row in all
//
// Loads take whole lines of 128 bytes, eight lanes each, as what is on its way takes whole lines of the L1. So a lane has one
// half or the other of a row's line, and the matrix instruction's 8 rows are 4 rows x 2 halves. Its 8 columns are 4 tokens x 2
// halves: of the products of rows and tokens those of equal halves count.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/dispatch.h"
#include "ops/cuda/small_product.cuh"
#include "ops/cuda/small_tokens.cuh"
#include "ops/cuda/small_write.cuh"
#include "ops/cuda/sum_over_ranks.cuh"

namespace tutti::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kLineBytes = 128;
constexpr int kTokens = 4;              // that the matrix unit takes
constexpr int kMostRows = 16, kMostSums = kMostRows * kTokens;  // of a tile

// Rows of a tile, and lines of a row and a warp in a step.
struct Shape {
  int rows;
  int lines;
  constexpr int step_bytes() const { return kWarps * lines * kLineBytes; }
  constexpr int in_whole_steps(int row_bytes) const { return (row_bytes + step_bytes() - 1) / step_bytes() * step_bytes(); }
  constexpr int blocks_per_sm() const { return rows * lines == 64 ? 2 : 3; }  // that registers leave room for
};
constexpr Shape kShallow{16, 2}, kDeep{16, 4}, kWholeRows{8, 8};

struct FewParams {
  SmallTokens tokens;
  SmallOutput output;
  const uint8_t* w;
  int row_bytes;
  const float* block_scales;  // FP8 with a scale for each block of weights
  int tiles;
  bool fresh;
};

struct SharedHead {
  TokenScratch<kWarps> tokens;
  alignas(16) float sums[2][kWarps][kMostSums];
};

// 16 bytes that are read once, or zeros.
__device__ __forceinline__ uint4 load_weights(const uint8_t* p, bool valid) {
  uint4 v;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %5, 0;\n"
      "mov.b32 %0, 0;\n"
      "mov.b32 %1, 0;\n"
      "mov.b32 %2, 0;\n"
      "mov.b32 %3, 0;\n"
      "@p ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
      : "l"(p), "r"(static_cast<int>(valid)));
  return v;
}

// A tile's first row. The last tile begins early enough to be whole.
template <ProductKind kKind, int kRows>
__device__ __forceinline__ int first_row(const SmallOutput& o, int tile) {
  if constexpr (kKind == ProductKind::kPlain) return min(tile * kRows, o.rows - kRows);
  if constexpr (kKind == ProductKind::kGated) return min(tile * (kRows / 2), o.rows / 2 - kRows / 2);
  const int half = o.rope.head_dim / 2;
  return tile / (half / (kRows / 2)) * o.rope.head_dim + tile % (half / (kRows / 2)) * (kRows / 2);
}

// What a lane has on its way: of each line 16 bytes of rows lane / 8 and 4, 8, 12 further.
template <ProductKind kKind, int kLines, int kRows>
struct Units {
  uint4 of[kLines][kRows / 4];
  const uint8_t* row;  // this lane's part of row lane / 8
  int64_t to_lower;    // and from there to that of row 8 + lane / 8

  __device__ __forceinline__ void go_to(const FewParams& p, int tile) {
    const int lane = threadIdx.x % 32, at = static_cast<int>(threadIdx.x) / 32 * (kLines * kLineBytes) + lane % 8 * 16;
    row = p.w + static_cast<int64_t>(first_row<kKind, kRows>(p.output, tile) + lane / 8) * p.row_bytes + at;
  }
  // A line of the step that begins `in_row` bytes into the rows; zeros beyond them, of which `left` bytes are this lane's.
  __device__ __forceinline__ void bring(const FewParams& p, int line, int in_row, int left) {
    const int at = in_row + line * kLineBytes;
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      const int64_t to_row = i % (kRows / 8) * (4 * p.row_bytes) + (i < kRows / 8 ? 0 : to_lower);
      of[line][i] = load_weights(row + at + to_row, at < left);
    }
  }
};

// Where in a tile a thread finishes sums.
template <ProductKind kKind, int kRows>
struct Place {
  int token = threadIdx.x % kTokens;
  int in_tile = threadIdx.x / kTokens;

  __device__ __forceinline__ int row(const SmallOutput& o, int tile) const { return first_row<kKind, kRows>(o, tile) + in_tile; }
  // Rows of the last tile may be the previous one's, too.
  __device__ __forceinline__ bool writes(const FewParams& p, int tile) const {
    const int begin = kKind == ProductKind::kPlain ? tile * kRows : kKind == ProductKind::kGated ? tile * (kRows / 2) : 0;
    return threadIdx.x < kRows * kTokens / kSumsOf<kKind> && token < p.tokens.count && row(p.output, tile) >= begin;
  }
};

// The rest of this block's tiles, all of which it has given to the other ranks.
template <typename Out, int kRows>
__device__ void finish_over_ranks(const FewParams& p, const IpcGroup& ranks, uint32_t epoch) {
  if (threadIdx.x == kThreads - 1) cuda_ipc::count_block(ranks);
  const Place<ProductKind::kPlain, kRows> place;
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

template <typename T, typename X, typename Out, ProductKind kKind, bool kBlockScaled, bool kOverRanks, int kRows, int kLines>
__global__ void __launch_bounds__(kThreads, Shape{kRows, kLines}.blocks_per_sm()) few_kernel(const FewParams p, const __grid_constant__ IpcGroup ranks) {
  static_assert(kKind == ProductKind::kPlain || !kOverRanks);
  constexpr int kWarpBytes = kLines * kLineBytes, kStepBytes = Shape{kRows, kLines}.step_bytes();
  constexpr int kEach = kSumsOf<kKind>, kSummers = kRows * kTokens / kEach;
  constexpr bool kScaled = sizeof(T) == 1;
  extern __shared__ __align__(128) uint8_t shared[];
  auto* head = reinterpret_cast<SharedHead*>(shared);
  uint8_t* xs = shared + sizeof(SharedHead);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  const int left = p.row_bytes - warp * kWarpBytes - lane % 8 * 16;

  if (p.fresh) wait_for_previous();
  Units<kKind, kLines, kRows> units;
  units.to_lower = static_cast<int64_t>(kKind == ProductKind::kPlain ? kRows / 2 : partner<kKind>(p.output)) * p.row_bytes;
  units.go_to(p, blockIdx.x);
#pragma unroll
  for (int line = 0; line < kLines; ++line) units.bring(p, line, 0, left);
  let_next_start();
  const int steps_bytes = Shape{kRows, kLines}.in_whole_steps(p.row_bytes);
  const int x_stride = steps_bytes * kWiden<T> + pad_of(kWiden<T>, p.tokens.count);
  uint32_t epoch = 0;
  {
    NormWeights<kThreads> weights;
    weights.expect(p.tokens, 0, p.tokens.k);
    wait_for_previous();
    if constexpr (kOverRanks) epoch = cuda_ipc::read_epoch(ranks);
    stage_tokens<X, kScaled>(p.tokens, weights, head->tokens, xs, x_stride, 0, p.tokens.k);
  }
  // A lane's columns are one half of a token's lines.
  const bool has_token = group / 2 < p.tokens.count;
  const uint8_t* x_at = xs + group / 2 * x_stride + (warp * kWarpBytes + lane % 8 * 16) * kWiden<T>;
  const Place<kKind, kRows> place;
  const int token = place.token;
  int buffer = 0;
  for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x, buffer ^= 1) {
    const int first = first_row<kKind, kRows>(p.output, tile), row = place.row(p.output, tile);
    const bool writes = place.writes(p, tile);
    Finish<X, Out, kKind> finish;
    if (writes) finish.expect(p.output, token, row);
    float acc[kRows / 8][4] = {};
    for (int in_row = 0; in_row < steps_bytes; in_row += kStepBytes) {
      int next = in_row + kStepBytes;
      if (next >= steps_bytes) {
        next = tile + static_cast<int>(gridDim.x) < p.tiles ? 0 : left;  // then nothing is brought any more
        if (next == 0) units.go_to(p, tile + static_cast<int>(gridDim.x));
      }
#pragma unroll
      for (int line = 0; line < kLines; ++line) {
        uint4 x[kWiden<T>];
        const int at = in_row + line * kLineBytes;
        // Beyond a row's end weights are zeros, and the tokens' bytes there were never written.
        const bool valid = has_token && at < left;
#pragma unroll
        for (int i = 0; i < kWiden<T>; ++i) {
          x[i] = valid ? load_shared(x_at + at * kWiden<T> + 16 * i) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int s = 0; s < kRows / 8; ++s) {
          if constexpr (kBlockScaled) {
            float part[4] = {};
            multiply_unit<T>(part, units.of[line][2 * s], units.of[line][2 * s + 1], x);
            const int in_all = at + warp * kWarpBytes, blocks = (p.row_bytes + kLineBytes - 1) / kLineBytes;
            if (in_all < p.row_bytes) {
              const int of_row = kKind == ProductKind::kPlain ? (first + 8 * s) / kLineBytes : (first + s * partner<kKind>(p.output)) / kLineBytes;
              const float scale = p.block_scales[of_row * blocks + in_all / kLineBytes];
#pragma unroll
              for (int i = 0; i < 4; ++i) acc[s][i] += scale * part[i];
            }
          } else {
            multiply_unit<T>(acc[s], units.of[line][2 * s], units.of[line][2 * s + 1], x);
          }
        }
        units.bring(p, line, next, left);
      }
    }
    // Of a lane's results those of its own half, and the same of the lane that has the other one.
#pragma unroll
    for (int s = 0; s < kRows / 8; ++s) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum = group % 2 == 0 ? acc[s][2 * i] : acc[s][2 * i + 1];
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
    if (kScaled) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) sum[i] *= head->tokens.scales[token];
    }
    if constexpr (kOverRanks) give(ranks, epoch, static_cast<int64_t>(token) * p.output.rows + row, finish.first_of(sum));
    else finish.write(p.output, token, row, sum);
  }
  if constexpr (kOverRanks) finish_over_ranks<Out, kRows>(p, ranks, epoch);
}

size_t shared_bytes(const LinearCall& call, const Shape& shape) {
  const int widen = call.dtype == DType::kF8E4M3 ? kWiden<fp8> : 1;
  const auto row_bytes = static_cast<int>(dtype_bytes(call.dtype, call.k)), tokens = static_cast<int>(call.num_tokens);
  return sizeof(SharedHead) + static_cast<size_t>(tokens) * static_cast<size_t>(shape.in_whole_steps(row_bytes) * widen + pad_of(widen, tokens));
}

int tiles_of(const LinearCall& call, const Shape& shape) {
  const auto rows = static_cast<int>(call.rows);
  return call.gated || call.rope != nullptr ? (rows / 2 + shape.rows / 2 - 1) / (shape.rows / 2) : (rows + shape.rows - 1) / shape.rows;
}

// More on its way for each block and fewer blocks, or the other way round: what leaves fewer multiprocessors idle in the last
// round of tiles. FP8 weights have to be widened and like to have more warps. The longest product has so many tiles that half
// of one, with all of its rows on their way, is better.
Shape shape_for(const Context& ctx, const LinearCall& call) {
  const bool fp8_weights = call.dtype == DType::kF8E4M3;
  if (call.gated && !fp8_weights) return kWholeRows;
  const auto fill = [&](const Shape& shape) {
    const int tiles = tiles_of(call, shape), round = shape.blocks_per_sm() * ctx.cuda->num_sms();
    return static_cast<double>(tiles) / ((tiles + round - 1) / round * round);
  };
  return fill(kDeep) >= (fp8_weights ? 1.3 : 1.0) * fill(kShallow) ? kDeep : kShallow;
}

int blocks_at_once(const Context& ctx, size_t bytes, int shared_percent, const Shape& shape) {
  constexpr size_t kReserved = 1024;  // shared memory that each block costs beside its own
  const size_t room = (ctx.cuda->shared_memory() + kReserved) * static_cast<size_t>(shared_percent) / 100;
  return std::clamp(static_cast<int>(room / (bytes + kReserved)), 1, shape.blocks_per_sm()) * ctx.cuda->num_sms();
}

template <typename T, typename X, int kRows, int kLines>
void launch_few(const Context& ctx, const LinearCall& call, FewParams& p) {
  constexpr Shape kShape{kRows, kLines};
  p.tiles = tiles_of(call, kShape);
  const size_t bytes = shared_bytes(call, kShape);
  // Found by trying, on an H200: FP8 rows are short, so blocks want more of them.
  const int per_sm = sizeof(T) == 2 ? 8 : call.gated ? 6 : 3, shared_percent = call.num_tokens == 1 ? 40 : 58;
  // Blocks that wait for other ranks are on the GPU together.
  const int most = call.ranks != nullptr ? blocks_at_once(ctx, bytes, shared_percent, kShape) : per_sm * ctx.cuda->num_sms();
  const IpcGroup ranks = call.ranks != nullptr ? *call.ranks : IpcGroup{};
  const auto go = [&](auto kernel) {
    launch_placed(ctx, {.shared_percent = shared_percent}, kernel, dim3(static_cast<unsigned>(std::min(p.tiles, most))), dim3(kThreads), bytes, p, ranks);
  };
  const auto by_kind = [&]<bool kBlockScaled>() {
    if constexpr (kRows == kWholeRows.rows) return go(few_kernel<T, X, X, ProductKind::kGated, kBlockScaled, false, kRows, kLines>);
    else if (call.ranks != nullptr) go(few_kernel<T, X, X, ProductKind::kPlain, kBlockScaled, true, kRows, kLines>);
    else if (call.gated) go(few_kernel<T, X, X, ProductKind::kGated, kBlockScaled, false, kRows, kLines>);
    else if (call.rope != nullptr) go(few_kernel<T, X, X, ProductKind::kRotated, kBlockScaled, false, kRows, kLines>);
    else if (call.out_type == DType::kF32) go(few_kernel<T, X, float, ProductKind::kPlain, kBlockScaled, false, kRows, kLines>);
    else go(few_kernel<T, X, X, ProductKind::kPlain, kBlockScaled, false, kRows, kLines>);
  };
  if constexpr (sizeof(T) == 1) {
    if (call.block_scaled) return by_kind.template operator()<true>();
  }
  by_kind.template operator()<false>();
}

}  // namespace

bool linear_few_can(const Context& ctx, const LinearCall& call) {
  // The other kernel cuts k over blocks where tiles are too few to occupy the GPU.
  return call.num_tokens <= kFewTokens && linear_small_can(ctx, call) && call.rows >= 2 * kMostRows &&
         4 * tiles_of(call, kShallow) >= ctx.cuda->num_sms() && shared_bytes(call, kWholeRows) <= ctx.cuda->shared_memory() / 2;
}

void linear_few(const Context& ctx, const LinearCall& call) {
  FewParams p{};
  p.tokens = {call.x, call.x_stride, static_cast<int>(call.num_tokens), static_cast<int>(call.k), call.norm_weight, call.eps};
  p.output = {call.bias, call.block_scaled ? nullptr : call.w_scales, call.out, call.out_stride, static_cast<int>(call.rows), call.add && call.ranks == nullptr,
              call.rope != nullptr ? *call.rope : RopeWrite{}};
  p.w = static_cast<const uint8_t*>(call.w);
  p.row_bytes = static_cast<int>(dtype_bytes(call.dtype, call.k));
  p.block_scales = call.block_scaled ? call.w_scales : nullptr;
  p.fresh = call.fresh;
  const Shape shape = shape_for(ctx, call);
  by_activation(call.x_type, [&](auto type) {
    using X = typename decltype(type)::type;
    const auto go = [&]<typename T>() {
      if (shape.lines == kDeep.lines) launch_few<T, X, kDeep.rows, kDeep.lines>(ctx, call, p);
      else if (shape.lines == kShallow.lines) launch_few<T, X, kShallow.rows, kShallow.lines>(ctx, call, p);
      else if constexpr (sizeof(T) == 2) launch_few<T, X, kWholeRows.rows, kWholeRows.lines>(ctx, call, p);
    };
    if (call.dtype == DType::kF8E4M3) go.template operator()<fp8>();
    else go.template operator()<X>();
  });
}

}  // namespace tutti::cuda
