#include "ops/ops.h"

#include <utility>

#include "base/check.h"
#include "ops/kernel_table.h"

namespace tutti::ops {
namespace {

void check_activations(const Context& ctx, const Tensor& x, int64_t rows, int64_t columns) {
  CHECK_EQ(x.rank(), 2);
  CHECK_EQ(x.size(0), rows);
  CHECK_EQ(x.size(1), columns);
  CHECK(x.device() == ctx.device);
}

void check_same_shape(const Tensor& a, const Tensor& b) {
  CHECK_EQ(a.rank(), b.rank());
  for (int d = 0; d < a.rank(); ++d) CHECK_EQ(a.size(d), b.size(d));
  CHECK(a.dtype() == b.dtype());
}

void check_indices(const Tensor& indices, int64_t count) {
  CHECK_EQ(indices.rank(), 1);
  CHECK_EQ(indices.size(0), count);
  CHECK(indices.dtype() == DType::kI32);
}

void check_cache(const KVLayer& cache, int64_t num_kv_heads, int64_t head_dim) {
  check_same_shape(cache.keys, cache.values);
  CHECK_EQ(cache.keys.rank(), 4);
  CHECK_EQ(cache.keys.size(1), num_kv_heads);
  CHECK_EQ(cache.keys.size(3), head_dim);
  CHECK(cache.keys.is_contiguous() && cache.values.is_contiguous());
}

void check_rope(const Tensor& x, const Tensor& positions, const Tensor& cos_sin) {
  CHECK_EQ(x.rank(), 3);
  check_indices(positions, x.size(0));
  CHECK_EQ(cos_sin.rank(), 3);
  CHECK_EQ(cos_sin.size(1), 2);
  CHECK_LE(2 * cos_sin.size(2), x.size(2));
  CHECK(cos_sin.dtype() == DType::kF32 && cos_sin.is_contiguous());
}

void check_write(const Tensor& k, const Tensor& v, const AttentionMetadata& meta, const KVLayer& cache) {
  CHECK_EQ(k.rank(), 3);
  check_same_shape(k, v);
  CHECK_EQ(k.size(0), meta.num_tokens);
  check_cache(cache, k.size(1), k.size(2));
  CHECK_EQ(meta.slot_mapping.size(0), meta.num_tokens);
  CHECK(meta.slot_mapping.dtype() == DType::kI64);
}

void check_squares(const Tensor& squares, const Tensor& of) {
  CHECK_EQ(squares.rank(), 2);
  CHECK_EQ(squares.size(0), of.size(0));
  CHECK_EQ(squares.size(1), norm_parts(of.size(1)));
  CHECK(squares.dtype() == DType::kF32 && squares.is_contiguous());
}

void check_product(const Context& ctx, const Input& x, const PackedWeight& w, const Tensor& bias) {
  CHECK(w.defined());
  check_activations(ctx, x.x, x.x.size(0), w.in_features);
  for (const auto& [vector, size] : {std::pair{bias, w.out_features}, {x.norm_weight, w.in_features}}) {
    if (!vector.defined()) continue;
    CHECK_EQ(vector.rank(), 1);
    CHECK_EQ(vector.size(0), size);
    CHECK(vector.dtype() == DType::kF32);
  }
  if (!x.scaled.defined()) return;
  CHECK(x.norm_weight.defined());
  check_same_shape(x.scaled, x.x);
  check_squares(x.squares, x.x);
}

// What an op takes from the arena until its end.
class Scratch {
 public:
  explicit Scratch(const Context& ctx) : ctx_(ctx), mark_(ctx.arena != nullptr ? ctx.arena->mark() : 0) {}
  ~Scratch() {
    if (ctx_.arena != nullptr) ctx_.arena->rewind(mark_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  Tensor tensor(const Tensor& like) const {
    CHECK(ctx_.arena != nullptr);
    return ctx_.arena->allocate({like.size(0), like.size(1)}, like.dtype());
  }
  Input normed(const Input& x) const {
    if (!x.norm_weight.defined()) return x;
    Input out = tensor(x.x);
    kernel_table(ctx_).rms_norm(ctx_, x.x, x.norm_weight, x.eps, out.x);
    out.keep_outliers = x.keep_outliers;
    return out;
  }

 private:
  const Context& ctx_;
  size_t mark_;
};

}  // namespace

PackedWeight pack_weight(const Context& ctx, std::span<const Tensor> pieces) {
  CHECK(!pieces.empty());
  const KernelTable& table = kernel_table(ctx);
  for (const Tensor& piece : pieces) {
    CHECK_EQ(piece.rank(), 2);
    CHECK_EQ(piece.size(1), pieces[0].size(1));
    CHECK(piece.device().is_cpu());
    require_kernel(table, Op::kLinear, piece.dtype());
  }
  return table.pack_weight(ctx, pieces);
}

PackedWeight pack_weight_fp8(const Context& ctx, std::span<const Tensor> pieces, std::span<const Tensor> scales) {
  CHECK(!pieces.empty());
  const KernelTable& table = kernel_table(ctx);
  require_kernel(table, Op::kLinear, DType::kF8E4M3);
  CHECK(scales.empty() || scales.size() == pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Tensor& piece = pieces[i];
    CHECK_EQ(piece.rank(), 2);
    CHECK_EQ(piece.size(1), pieces[0].size(1));
    CHECK(piece.device().is_cpu());
    CHECK_EQ(piece.dtype() == DType::kF8E4M3, !scales.empty());
    if (scales.empty()) continue;
    CHECK(scales[i].dtype() == DType::kF32 && scales[i].device().is_cpu() && scales[i].is_contiguous());
    CHECK_EQ(scales[i].rank(), scales[0].rank());
    if (scales[i].rank() == 1) {
      CHECK(scales[i].size(0) == 1 || scales[i].size(0) == piece.size(0));
    } else {
      CHECK_EQ(scales[i].rank(), 2);
      CHECK_EQ(scales[i].size(0), (piece.size(0) + 127) / 128);
      CHECK_EQ(scales[i].size(1), (piece.size(1) + 127) / 128);
    }
  }
  return table.pack_weight_fp8(ctx, pieces, scales);
}

void argmax(const Context& ctx, const Tensor& x, const Tensor& values, const Tensor& indices, int64_t first) {
  CHECK_EQ(x.rank(), 2);
  CHECK_GE(x.size(1), 1);
  CHECK(x.dtype() == DType::kF32 && values.dtype() == DType::kF32);
  CHECK_EQ(values.rank(), 1);
  CHECK_EQ(values.size(0), x.size(0));
  check_indices(indices, x.size(0));
  kernel_table(ctx).argmax(ctx, x, values, indices, first);
}

void best_of_parts(const Context& ctx, const Tensor& parts, const Tensor& values, const Tensor& indices) {
  CHECK_EQ(parts.rank(), 3);
  CHECK_GE(parts.size(0), 1);
  CHECK_EQ(parts.size(1), 2);
  CHECK(parts.dtype() == DType::kI32 && parts.is_contiguous() && values.dtype() == DType::kF32);
  CHECK_EQ(values.rank(), 1);
  CHECK_EQ(values.size(0), parts.size(2));
  check_indices(indices, parts.size(2));
  kernel_table(ctx).best_of_parts(ctx, parts, values, indices);
}

void draw_tokens(const Context& ctx, const Tensor& x, const Tensor& draws, const Tensor& values, const Tensor& indices) {
  CHECK_EQ(x.rank(), 2);
  CHECK(x.dtype() == DType::kF32 && values.dtype() == DType::kF32 && draws.dtype() == DType::kU8);
  CHECK_EQ(values.size(0), x.size(0));
  check_indices(indices, x.size(0));
  CHECK_EQ(static_cast<size_t>(draws.size(0)), sizeof(TokenDraw) * static_cast<size_t>(x.size(0)));
  kernel_table(ctx).draw_tokens(ctx, x, draws, values, indices);
}

void embedding(const Context& ctx, const TokenIds& tokens, const PackedWeight& table, int64_t vocab_begin, const Tensor& out) {
  CHECK(table.defined());
  check_indices(tokens.ids, tokens.ids.size(0));
  if (tokens.chosen.defined()) check_indices(tokens.chosen, tokens.chosen.size(0));
  check_activations(ctx, out, tokens.ids.size(0), table.in_features);
  kernel_table(ctx).embedding(ctx, tokens, table, vocab_begin, out);
}

Input Input::rows(int64_t begin, int64_t count) const {
  Input part = *this;
  part.x = x.slice(0, begin, count);
  if (scaled.defined()) part.scaled = scaled.slice(0, begin, count), part.squares = squares.slice(0, begin, count);
  return part;
}

void linear(const Context& ctx, const Input& x, const PackedWeight& w, const Tensor& bias, const Tensor& out) {
  check_product(ctx, x, w, bias);
  check_activations(ctx, out, x.x.size(0), w.out_features);
  const KernelTable& table = kernel_table(ctx);
  if (x.norm_weight.defined() && table.linear_of_norm != nullptr) return table.linear_of_norm(ctx, x, w, bias, out);
  const Scratch scratch(ctx);
  table.linear(ctx, scratch.normed(x), w, bias, out);
}

bool linear_add(const Context& ctx, const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& residual,
                const NormAhead& ahead, const cuda_ipc::IpcGroup* ranks) {
  check_product(ctx, x, w, bias);
  check_activations(ctx, residual, x.size(0), w.out_features);
  if (ahead.weight.defined()) {
    check_same_shape(ahead.scaled, residual);
    check_squares(ahead.squares, residual);
    CHECK_EQ(ahead.weight.size(0), w.out_features);
  }
  const KernelTable& table = kernel_table(ctx);
  CHECK(ranks == nullptr || sums_over_ranks(ctx, x, w, residual));
  if (table.linear_add != nullptr) return table.linear_add(ctx, x, w, bias, residual, ahead, ranks);
  const Scratch scratch(ctx);
  const Tensor out = scratch.tensor(residual);
  table.linear(ctx, x, w, bias, out);
  table.add(ctx, residual, out);
  return false;
}

bool sums_over_ranks(const Context& ctx, const Tensor& x, const PackedWeight& w, const Tensor& residual) {
  const KernelTable& table = kernel_table(ctx);
  return table.sums_over_ranks != nullptr && residual.numel() > 0 && table.sums_over_ranks(ctx, x, w, residual);
}

void gate_up_silu(const Context& ctx, const Input& x, const PackedWeight& w, const Tensor& out) {
  CHECK_EQ(w.segments.size(), 2u);
  CHECK_EQ(w.segments[0].rows, w.segments[1].rows);
  check_product(ctx, x, w, Tensor());
  check_activations(ctx, out, x.x.size(0), w.segments[0].rows);
  const KernelTable& table = kernel_table(ctx);
  if (x.norm_weight.defined() && table.gate_up_silu_of_norm != nullptr) return table.gate_up_silu_of_norm(ctx, x, w, out);
  const Scratch scratch(ctx);
  table.gate_up_silu(ctx, scratch.normed(x), w, out);
}

void rms_norm(const Context& ctx, const Tensor& x, const Tensor& weight, double eps, const Tensor& out) {
  CHECK(x.rank() == 2 || x.rank() == 3);
  check_same_shape(x, out);
  CHECK_EQ(weight.rank(), 1);
  CHECK_EQ(weight.size(0), x.size(x.rank() - 1));
  CHECK(weight.dtype() == DType::kF32);
  kernel_table(ctx).rms_norm(ctx, x, weight, eps, out);
}

void add_rms_norm(const Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& weight, double eps,
                  const Tensor& out) {
  CHECK_EQ(residual.rank(), 2);
  check_same_shape(residual, delta);
  check_same_shape(residual, out);
  CHECK_EQ(weight.rank(), 1);
  CHECK_EQ(weight.size(0), residual.size(1));
  CHECK(weight.dtype() == DType::kF32);
  kernel_table(ctx).add_rms_norm(ctx, residual, delta, weight, eps, out);
}

void add(const Context& ctx, const Tensor& x, const Tensor& y) {
  CHECK_EQ(x.rank(), 2);
  check_same_shape(x, y);
  kernel_table(ctx).add(ctx, x, y);
}

void rope(const Context& ctx, const Tensor& x, const Tensor& positions, const Tensor& cos_sin, RopeLayout layout) {
  check_rope(x, positions, cos_sin);
  kernel_table(ctx).rope(ctx, x, positions, cos_sin, layout);
}

void write_kv(const Context& ctx, const Tensor& k, const Tensor& v, const AttentionMetadata& meta, const KVLayer& cache) {
  check_write(k, v, meta, cache);
  kernel_table(ctx).write_kv(ctx, k, v, meta, cache);
}

void rope_write_kv(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cos_sin, RopeLayout layout,
                   const AttentionMetadata& meta, const KVLayer& cache) {
  check_rope(q, meta.positions, cos_sin);
  check_rope(k, meta.positions, cos_sin);
  check_write(k, v, meta, cache);
  CHECK(q.dtype() == k.dtype());
  CHECK_EQ(q.size(2), k.size(2));
  kernel_table(ctx).rope_write_kv(ctx, q, k, v, cos_sin, layout, meta, cache);
}

void qkv_rope_write_kv(const Context& ctx, const Input& x, const PackedWeight& w, const Tensor& bias, const Tensor& cos_sin,
                       RopeLayout layout, const AttentionMetadata& meta, const KVLayer& cache, const Tensor& qkv) {
  check_product(ctx, x, w, bias);
  check_activations(ctx, qkv, x.x.size(0), w.out_features);
  CHECK(qkv.dtype() == x.x.dtype());
  const int64_t kv_heads = cache.keys.size(1), head_dim = cache.keys.size(3), kv_size = kv_heads * head_dim;
  const int64_t q_size = w.out_features - 2 * kv_size;
  CHECK(q_size > 0 && q_size % head_dim == 0);
  const Tensor q = qkv.slice(1, 0, q_size).split_last(q_size / head_dim, head_dim);
  const Tensor k = qkv.slice(1, q_size, kv_size).split_last(kv_heads, head_dim);
  const Tensor v = qkv.slice(1, q_size + kv_size, kv_size).split_last(kv_heads, head_dim);
  check_rope(q, meta.positions, cos_sin);
  check_write(k, v, meta, cache);
  const KernelTable& table = kernel_table(ctx);
  if (table.qkv_rope_write_kv != nullptr && table.qkv_rope_write_kv(ctx, x, w, bias, cos_sin, layout, meta, cache, qkv)) return;
  linear(ctx, x, w, bias, qkv);
  table.rope_write_kv(ctx, q, k, v, cos_sin, layout, meta, cache);
}

void paged_attention(const Context& ctx, const Tensor& q, const KVLayer& cache, const AttentionMetadata& meta,
                     const AttentionParams& params, const Tensor& out) {
  CHECK_EQ(q.rank(), 3);
  check_same_shape(q, out);
  CHECK_EQ(q.size(0), meta.num_tokens);
  check_cache(cache, cache.keys.size(1), q.size(2));
  CHECK_EQ(q.size(1) % cache.keys.size(1), 0);
  check_indices(meta.query_start, meta.num_seqs + 1);
  check_indices(meta.seq_lens, meta.num_seqs);
  CHECK_EQ(meta.block_table.rank(), 2);
  CHECK_GE(meta.block_table.size(0), meta.num_seqs);
  CHECK(meta.block_table.dtype() == DType::kI32);
  kernel_table(ctx).paged_attention(ctx, q, cache, meta, params, out);
}

void encode_activations(const Context& ctx, const Tensor& x, const Tensor& codes) {
  check_activations(ctx, x, x.size(0), x.size(1));
  CHECK_EQ(x.size(1) % 32, 0);
  check_activations(ctx, codes, x.size(0), activation_code_bytes(x.size(1)));
  CHECK(x.dtype() == DType::kF32 && codes.dtype() == DType::kU8);
  kernel_table(ctx).encode_activations(ctx, x, codes);
}

void decode_activations(const Context& ctx, const Tensor& codes, const Tensor& x) {
  check_activations(ctx, x, x.size(0), x.size(1));
  CHECK_EQ(x.size(1) % 32, 0);
  check_activations(ctx, codes, x.size(0), activation_code_bytes(x.size(1)));
  CHECK(x.dtype() == DType::kF32 && codes.dtype() == DType::kU8);
  kernel_table(ctx).decode_activations(ctx, codes, x);
}

void gather_rows(const Context& ctx, const Tensor& x, const Tensor& rows, const Tensor& out) {
  check_activations(ctx, x, x.size(0), out.size(1));
  check_activations(ctx, out, rows.size(0), x.size(1));
  check_indices(rows, rows.size(0));
  CHECK(x.dtype() == out.dtype());
  kernel_table(ctx).gather_rows(ctx, x, rows, out);
}

void copy_with_table(const Context& ctx, const Tensor& from, const Tensor& to, const Tensor& table, const Tensor& to_table) {
  check_indices(from, to.size(0));
  check_indices(to, to.size(0));
  check_same_shape(table, to_table);
  CHECK(table.dtype() == DType::kI32 && to_table.dtype() == DType::kI32 && table.rank() == 2);
  kernel_table(ctx).copy_with_table(ctx, from, to, table, to_table);
}

}  // namespace tutti::ops
