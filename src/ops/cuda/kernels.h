// The CUDA kernels' host entry points, one file of kernels each. Shapes are checked by ops.cc. Worker thread only.
#pragma once

#include <span>

#include "ops/cuda/context.h"
#include "ops/kernel_table.h"

namespace tutti::cuda {

// elementwise.cu
void embedding(const Context& ctx, const Tensor& ids, const PackedWeight& table, int64_t vocab_begin, const Tensor& out);
void rms_norm(const Context& ctx, const Tensor& x, const Tensor& weight, double eps, const Tensor& out);
void add_rms_norm(const Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& weight, double eps, const Tensor& out);
void add(const Context& ctx, const Tensor& x, const Tensor& y);
void take_pending(const Context& ctx, const Tensor& ids, const Tensor& tokens);
void gather_rows(const Context& ctx, const Tensor& x, const Tensor& rows, const Tensor& out);
// out += bias, both of whatever type.  out [num_tokens, features], bias F32 [features]
void add_bias(const Context& ctx, const Tensor& bias, const Tensor& out);
// out[t, i] = silu(x[t, i]) * x[t, n + i].  x [num_tokens, 2 n], out [num_tokens, n]
void silu_mul(const Context& ctx, const Tensor& x, const Tensor& out);

// rope.cu
void rope(const Context& ctx, const Tensor& x, const Tensor& positions, const Tensor& cos_sin, RopeLayout layout);
void write_kv(const Context& ctx, const Tensor& k, const Tensor& v, const AttentionMetadata& meta, const KVLayer& cache);
// rope of q and k, then write_kv, in one pass.
void rope_write_kv(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cos_sin, RopeLayout layout,
                   const AttentionMetadata& meta, const KVLayer& cache);

// attention.cc, over attention_decode.cu and attention_prefill.cu
void paged_attention(const Context& ctx, const Tensor& q, const KVLayer& cache, const AttentionMetadata& meta,
                     const ops::AttentionParams& params, const Tensor& out);

// reduce.cu
void argmax(const Context& ctx, const Tensor& x, const Tensor& values, const Tensor& indices);
// Rows as E4M3 with a scale each, their largest element over 448.  x [rows, k] BF16 or F16, out [rows, k], scales F32 [rows]
void quantize_rows(const Context& ctx, const Tensor& x, const Tensor& out, const Tensor& scales);

// linear.cc
PackedWeight pack_weight_fp8(const Context& ctx, std::span<const Tensor> pieces, std::span<const Tensor> scales);
PackedWeight pack_weight(const Context& ctx, std::span<const Tensor> pieces);
void linear(const Context& ctx, const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& out);
void gate_up_silu(const Context& ctx, const Tensor& x, const PackedWeight& w, const Tensor& out);

// A product of few rows with a weight, as kernels see it.  w [rows, k] row by row, x [num_tokens, k], out [num_tokens, n]
struct LinearCall {
  const void* w = nullptr;
  int64_t rows = 0;
  int64_t k = 0;
  const void* x = nullptr;
  int64_t x_stride = 0;  // elements
  int64_t num_tokens = 0;
  const float* bias = nullptr;
  void* out = nullptr;
  int64_t out_stride = 0;
  DType out_type = DType::kBF16;
  bool gated = false;  // out = silu(x Wg^T) * (x Wu^T), the first half of the rows is Wg: n = rows / 2
  DType dtype = DType::kBF16;  // of w and x
  const float* w_scales = nullptr;  // FP8: of each row
  const float* x_scales = nullptr;  // FP8: of each token
};

// linear_small.cu: at most kSmallTokens tokens, compute capability 9.0 and later.
constexpr int64_t kSmallTokens = 8;
bool linear_small_can(const Context& ctx, const LinearCall& call);
void linear_small(const Context& ctx, const LinearCall& call);

// linear_tile.cu: at most kMaxTileTokens tokens, Hopper (its matrix instructions exist nowhere else).
constexpr int64_t kMaxTileTokens = 64;
bool linear_tile_can(const Context& ctx, const LinearCall& call);
void linear_tile(const Context& ctx, const LinearCall& call);

}  // namespace tutti::cuda
