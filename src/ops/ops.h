// The operations a model is made of. Each checks its shapes once and calls the kernel of the context's device and the
// tensors' types. Activations are F32 on the CPU, BF16 or F16 on a GPU. Outputs are tensors that the caller provides;
// nothing is allocated but scratch from the context's arena. Called by the rank's worker thread.
//
// On the CPU every op is row-invariant: the bits of a row do not depend on the other rows, the batch or the threads.
#pragma once

#include <span>

#include "config/model_config.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "ops/packed_weight.h"
#include "tensor/tensor.h"

namespace tutti::cuda_ipc {
struct IpcGroup;  // tensor/cuda/ipc_memory.h
}

namespace tutti::ops {

// Repacks a weight [out_features, in_features], given as pieces whose rows are stacked (q, k and v; gate and up), into
// the layout that linear() reads fastest on this device and processor. Pieces may be strided views of mapped files and
// may differ in type; `in_features` is the same in all. Throws DeviceError when memory is short, ConfigError when a
// type has no kernel.
PackedWeight pack_weight(const Context& ctx, std::span<const Tensor> pieces);

// The same with FP8 (E4M3) elements and their scales. Either `scales` is empty and the pieces, of any wider type, are
// rounded here with a scale for each row, or the pieces are E4M3 and scales[i] is F32: [rows of piece i], [1], or, for all
// pieces alike, [rows / 128, in_features / 128] (rounded up) with a scale for each block; then the rows of all pieces but
// the last are multiples of 128. With more than a few tokens Hopper rounds the activations to E4M3 too, with a scale for
// each token; elsewhere, and with CudaOptions::fp8_weight_only, only the weights are FP8. GPUs only; throws ConfigError
// elsewhere, or when a side of the whole weight is not a multiple of 16.
PackedWeight pack_weight_fp8(const Context& ctx, std::span<const Tensor> pieces, std::span<const Tensor> scales);

// The tokens of a step, I32 [num_tokens]: -1 - i stands for chosen[i], which the device chose in the step before. `chosen` is
// undefined where there are none.
struct TokenIds {
  Tensor ids;
  Tensor chosen;
};

// out[t] = table[id of token t - vocab_begin], zeros for ids outside [vocab_begin, vocab_begin + rows).
// table [rows, hidden_size], out [num_tokens, hidden_size]
void embedding(const Context& ctx, const TokenIds& tokens, const PackedWeight& table, int64_t vocab_begin, const Tensor& out);

// What linear_add() may leave for the norm that reads the stream next, so that it need not be a kernel of its own:
// rms_norm(x) is `scaled` times a factor of the row, which products apply to their sums.
constexpr int64_t kNormPart = 64;  // elements
constexpr int64_t norm_parts(int64_t n) { return (n + kNormPart - 1) / kNormPart; }
struct NormAhead {
  Tensor weight;   // F32 [hidden_size], the norm's; undefined: nothing is asked for
  Tensor scaled;   // [num_tokens, hidden_size]: x * weight
  Tensor squares;  // F32 [num_tokens, norm_parts(hidden_size)]: sums of x^2 over parts of the row
  // The weight that the norm's reader multiplies with, where linear_add() itself has to wait for its input: a part of it may be
  // brought closer meanwhile. nullptr: none.
  const PackedWeight* reader = nullptr;
};

// What a product reads: a tensor as it is, or rms_norm of it, which GPUs then compute in the product's own kernel.
struct Input {
  Input(const Tensor& tensor) : x(tensor) {}  // NOLINT: a tensor is an input
  Input(const Tensor& tensor, const Tensor& weight, double epsilon) : x(tensor), norm_weight(weight), eps(epsilon) {}
  Tensor x;            // [num_tokens, in_features]
  Tensor norm_weight;  // F32 [in_features]; undefined: no norm
  double eps = 0;
  Tensor scaled;   // of x and this norm, where linear_add() left them; undefined otherwise
  Tensor squares;
  Input rows(int64_t begin, int64_t count) const;
  // Where CPUs round inputs to 8 bits: blocks with an element far above the row get a second code (ops/cpu/outliers.h). Not
  // for what crosses between ranks as codes.
  bool keep_outliers = false;
};

// out = x W^T (+ bias).  out [num_tokens, out_features], bias F32 [out_features] or undefined
void linear(const Context& ctx, const Input& x, const PackedWeight& w, const Tensor& bias, const Tensor& out);

// residual += x W^T (+ bias).  x [num_tokens, in_features], residual [num_tokens, out_features], bias as above.
// True: `ahead` was filled from the new residual; false: there is no kernel for it, and what is in it means nothing.
// With `ranks` (Communicator::sum_in_kernel) residual += the sum of that over the ranks of a group, in their order: only where
// sums_over_ranks() says so, and all ranks together.
bool linear_add(const Context& ctx, const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& residual,
                const NormAhead& ahead = {}, const cuda_ipc::IpcGroup* ranks = nullptr);
// Is there such a kernel? The same on all ranks whose weights have equal sizes.
bool sums_over_ranks(const Context& ctx, const Tensor& x, const PackedWeight& w, const Tensor& residual);

// out = silu(x Wg^T) * (x Wu^T), `w` packed from the pieces {gate, up} of equal size.  out [num_tokens, intermediate_size]
void gate_up_silu(const Context& ctx, const Input& x, const PackedWeight& w, const Tensor& out);

// out = x / sqrt(mean(x^2) + eps) * weight over the last dimension (arXiv:1910.07467). x and out [..., hidden_size],
// may be the same; weight F32 [hidden_size]
void rms_norm(const Context& ctx, const Tensor& x, const Tensor& weight, double eps, const Tensor& out);

// residual += delta; out = rms_norm(residual).  All [num_tokens, hidden_size]
void add_rms_norm(const Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& weight, double eps, const Tensor& out);

// x += y, same shape.
void add(const Context& ctx, const Tensor& x, const Tensor& y);

// Rotates the first 2 * cos_sin.size(2) elements of every head in place (arXiv:2104.09864).
// x [num_tokens, num_heads, head_dim] (rows may be strided), positions I32 [num_tokens],
// cos_sin F32 [max_positions, 2, rotary_dim / 2]: cosines, then sines
void rope(const Context& ctx, const Tensor& x, const Tensor& positions, const Tensor& cos_sin, RopeLayout layout);

// Writes the step's keys and values into their slots.  k and v [num_tokens, num_kv_heads, head_dim] (rows strided)
void write_kv(const Context& ctx, const Tensor& k, const Tensor& v, const AttentionMetadata& meta, const KVLayer& cache);

// The last two in one pass: rotates q and k in place, then writes k and v.  q [num_tokens, num_heads, head_dim], k and v
// [num_tokens, num_kv_heads, head_dim] (rows strided)
void rope_write_kv(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cos_sin, RopeLayout layout,
                   const AttentionMetadata& meta, const KVLayer& cache);

// linear() into qkv, then rope_write_kv() of its parts, in one kernel where there is one. `w` is packed from q, k and v,
// qkv [num_tokens, (num_heads + 2 num_kv_heads) * head_dim]; afterwards only q's part of it means something.
void qkv_rope_write_kv(const Context& ctx, const Input& x, const PackedWeight& w, const Tensor& bias, const Tensor& cos_sin,
                       RopeLayout layout, const AttentionMetadata& meta, const KVLayer& cache, const Tensor& qkv);

struct AttentionParams {
  double scale = 1.0;
  int64_t sliding_window = 0;  // 0 = all; else a token sees itself and the sliding_window - 1 before it
  double soft_cap = 0.0;       // 0 = none; else scores = cap * tanh(scores / cap)
};

// Causal attention over the paged cache.  q and out [num_tokens, num_heads, head_dim] (rows of q strided)
void paged_attention(const Context& ctx, const Tensor& q, const KVLayer& cache, const AttentionMetadata& meta,
                     const AttentionParams& params, const Tensor& out);

// The form in which activations of quantised layers cross between ranks: int8 codes with a scale for each 32 elements,
// and back. linear() and gate_up_silu() over a quantised weight give the same bits for decoded activations as for the
// originals.  x F32 [num_tokens, k] (rows may be strided), codes U8 [num_tokens, activation_code_bytes(k)]; k a multiple of 32
inline int64_t activation_code_bytes(int64_t k) { return k / 32 * 36; }
void encode_activations(const Context& ctx, const Tensor& x, const Tensor& codes);
void decode_activations(const Context& ctx, const Tensor& codes, const Tensor& x);

// The largest element of each row and where it is, counted from `first`, the first of equals; NaN is less than everything.
// x F32 [n, columns], values F32 [n], indices I32 [n]
void argmax(const Context& ctx, const Tensor& x, const Tensor& values, const Tensor& indices, int64_t first = 0);

// The best of several such answers, of ranks that each saw a part of the columns.
// parts I32 [num_parts, 2, n]: of each part its indices, then the bits of its values; values F32 [n], indices I32 [n]
void best_of_parts(const Context& ctx, const Tensor& parts, const Tensor& values, const Tensor& indices);

// How a row's token is drawn: of weights exp((x - largest x) * inverse_temperature), those below min_weight lose theirs, then
// those outside the shortest list of the heaviest that has top_p of the sum (of equal ones at its end all stay); the token is
// where the running sum, in the order of the columns, passes `draw` of the whole.
struct TokenDraw {
  double draw = 0;                // uniform in [0, 1)
  float inverse_temperature = 0;  // 0: the largest, whatever the rest says
  float top_p = 1;
  float min_weight = 0;
};

// As argmax(), but where a row's draw asks for it the index is that of the token drawn. GPUs only.
// x F32 [n, columns], draws U8 [n * sizeof(TokenDraw)], values F32 [n], indices I32 [n]
void draw_tokens(const Context& ctx, const Tensor& x, const Tensor& draws, const Tensor& values, const Tensor& indices);

// out[i] = x[rows[i]].  rows I32 [n], x [num_tokens, hidden_size], out [n, hidden_size]
void gather_rows(const Context& ctx, const Tensor& x, const Tensor& rows, const Tensor& out);

// to = from, and to_table = table, whose rows may be further apart.  from and to I32 [n], the tables I32 [rows, columns]
void copy_with_table(const Context& ctx, const Tensor& from, const Tensor& to, const Tensor& table, const Tensor& to_table);

}  // namespace tutti::ops
