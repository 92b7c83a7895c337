// A product of tokens with a packed weight, as its kernels see it, and the kernels. Worker thread only.
#pragma once

#include <functional>

#include "ops/cuda/context.h"
#include "ops/kernel_table.h"
#include "tensor/cuda/ipc_memory.h"

namespace tutti::cuda {

// How a packed weight lies in its allocation: the pieces' rows one below the other, FP8 ones followed by their F32 scales.
enum WeightLayout : int {
  kPlain = 0,        // 16-bit elements
  kRowScaled = 1,    // E4M3, a scale for each row
  kBlockScaled = 2,  // E4M3, a scale for each block of 128 rows x 128 columns
};
constexpr int64_t kScaleBlock = 128;

// Where the scales of an FP8 weight of `elements` bytes start.
inline int64_t scales_offset(int64_t elements) { return (elements + 15) / 16 * 16; }

// What becomes of the rows of q, k and v: q and k are rotated, k and v go to the cache. Halves of a head are pairs.
struct RopeWrite {
  const float* cos_sin;  // [max_positions, 2, head_dim / 2]
  const int32_t* positions;
  const int64_t* slots;
  void* keys;    // [num_blocks, kv_heads, block_size, head_dim]
  void* values;
  int block_size;
  bool swizzled;
  bool fp8_cache;
  int heads;
  int kv_heads;
  int head_dim;
};

// What a product that adds to the stream leaves for the norm behind it (ops::NormAhead).
struct LeftForNorm {
  const float* weight = nullptr;  // [rows]; nullptr: nothing is asked for
  void* scaled = nullptr;         // the activations' type
  int64_t stride = 0;
  float* squares = nullptr;
};

// The next product's weight, of which linear_few() may bring some rows into the L2 (ops::NormAhead::reader).
struct NextWeight {
  const void* w = nullptr;
  int64_t rows = 0;
  int64_t row_bytes = 0;
};

// w [rows, k] row by row, x [num_tokens, k], out [num_tokens, n]
struct LinearCall {
  const void* w = nullptr;
  bool fresh = false;          // w is what the kernel before writes: not to be read before that one's end
  DType dtype = DType::kBF16;  // of w
  int64_t rows = 0;
  int64_t k = 0;
  const float* w_scales = nullptr;  // FP8
  bool block_scaled = false;
  const void* x = nullptr;
  DType x_type = DType::kBF16;
  int64_t x_stride = 0;  // elements
  int64_t num_tokens = 0;
  const float* x_scales = nullptr;  // FP8 tokens: of each
  const float* norm_weight = nullptr;  // [k]: x is normed first
  float eps = 0;
  const void* scaled = nullptr;  // x * norm_weight, where the product before left it
  int64_t scaled_stride = 0;
  const float* squares = nullptr;  // with it: sums of x^2, [num_tokens, ops::norm_parts(k)]
  const float* bias = nullptr;
  void* out = nullptr;
  int64_t out_stride = 0;
  DType out_type = DType::kBF16;
  bool gated = false;  // out = silu(x Wg^T) * (x Wu^T), the first half of the rows is Wg: n = rows / 2
  bool add = false;    // out += x W^T
  LeftForNorm left;    // with add
  NextWeight next;     // with add
  const cuda_ipc::IpcGroup* ranks = nullptr;  // with add, linear_few() alone: out += the sum over them of x W^T (+ bias)
  const RopeWrite* rope = nullptr;  // out gets q only
  const std::function<void()>* rotate = nullptr;  // what `rope` asks for, as kernels of their own after a product without it
};

// linear_small.cu: at most kSmallTokens tokens, compute capability 9.0 and later. Does everything that a call may ask for,
// except that FP8 weights want 16-bit tokens.
constexpr int64_t kSmallTokens = 8;
bool linear_small_can(const Context& ctx, const LinearCall& call);
void linear_small(const Context& ctx, const LinearCall& call);

// linear_few.cu: the same for at most kFewTokens tokens and enough rows to occupy the GPU; faster there.
constexpr int64_t kFewTokens = 2;
bool linear_few_can(const Context& ctx, const LinearCall& call);
void linear_few(const Context& ctx, const LinearCall& call);

// linear_tile.cu: at most kMaxTileTokens tokens, Hopper (its matrix instructions exist nowhere else). A norm only of what the
// product before left for it; rope where a tile has whole heads; FP8 weights want FP8 tokens. With CudaOptions::batch_invariant the bits of a token's result do not
// depend on the other tokens or their number.
constexpr int64_t kMaxTileTokens = 64;
bool linear_tile_can(const Context& ctx, const LinearCall& call);
void linear_tile(const Context& ctx, const LinearCall& call);

}  // namespace tutti::cuda
