// The CUDA kernels' host entry points, one file of kernels each. Shapes are checked by ops.cc. Worker thread only.
#pragma once

#include <span>

#include "ops/cuda/context.h"
#include "ops/kernel_table.h"

namespace tutti::cuda {

// elementwise.cu
void embedding(const Context& ctx, const ops::TokenIds& tokens, const PackedWeight& table, int64_t vocab_begin, const Tensor& out);
void rms_norm(const Context& ctx, const Tensor& x, const Tensor& weight, double eps, const Tensor& out);
void add_rms_norm(const Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& weight, double eps, const Tensor& out);
void add(const Context& ctx, const Tensor& x, const Tensor& y);
void gather_rows(const Context& ctx, const Tensor& x, const Tensor& rows, const Tensor& out);
void copy_with_table(const Context& ctx, const Tensor& from, const Tensor& to, const Tensor& table, const Tensor& to_table);
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

// draw_tokens.cu
void draw_tokens(const Context& ctx, const Tensor& x, const Tensor& draws, const Tensor& values, const Tensor& indices);

// reduce.cu
void argmax(const Context& ctx, const Tensor& x, const Tensor& values, const Tensor& indices, int64_t first);
// The largest elements of parts of rows, each part a block's, as keys (largest.cuh): I64 [rows, parts], 32 parts at most.
Tensor largest_of_parts(const Context& ctx, const Scratch& scratch, const Tensor& x);
void best_of_parts(const Context& ctx, const Tensor& parts, const Tensor& values, const Tensor& indices);
// Rows as E4M3 with a scale each, their largest element over 448; normed first unless norm_weight is undefined.
// x [rows, k] BF16 or F16, out [rows, k], scales F32 [rows]
void quantize_rows(const Context& ctx, const Tensor& x, const Tensor& norm_weight, double eps, const Tensor& out, const Tensor& scales);
// The reverse for a weight's rows [first, first + count): w E4M3 [rows, k] with a scale for each row, or (`by_block`) for each
// 128 x 128 block.  out [count, k] BF16 or F16
void dequantize_rows(const Context& ctx, const Tensor& w, const float* scales, bool by_block, int64_t first, const Tensor& out);

// linear.cc
PackedWeight pack_weight_fp8(const Context& ctx, std::span<const Tensor> pieces, std::span<const Tensor> scales);
PackedWeight pack_weight(const Context& ctx, std::span<const Tensor> pieces);
void linear(const Context& ctx, const ops::Input& x, const PackedWeight& w, const Tensor& bias, const Tensor& out);
bool linear_add(const Context& ctx, const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& residual,
                const ops::NormAhead& ahead, const cuda_ipc::IpcGroup* ranks);
bool sums_over_ranks(const Context& ctx, const Tensor& x, const PackedWeight& w, const Tensor& residual);
void gate_up_silu(const Context& ctx, const ops::Input& x, const PackedWeight& w, const Tensor& out);
bool qkv_rope_write_kv(const Context& ctx, const ops::Input& x, const PackedWeight& w, const Tensor& bias, const Tensor& cos_sin,
                       RopeLayout layout, const AttentionMetadata& meta, const KVLayer& cache, const Tensor& qkv);

}  // namespace tutti::cuda
