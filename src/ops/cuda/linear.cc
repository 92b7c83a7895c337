// Weights of the CUDA backend, and which kernel a product takes: one of those that stream weights, or cuBLASLt.
#include <algorithm>
#include <functional>
#include <vector>

#include "base/check.h"
#include "ops/cuda/attention.h"
#include "ops/cuda/cublas_lt.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/linear_call.h"
#include "ops/cuda/product_choice.h"
#include "ops/cuda/upload.h"
#include "tensor/dequantize.h"
#include "tensor/device_memory.h"
#include "tensor/half.h"

namespace tutti::cuda {
namespace {

// Rows of any type as the activations' type.
void convert_row(const Tensor& piece, int64_t row, DType to, std::vector<float>& values, uint16_t* out) {
  const int64_t k = piece.size(1);
  dequantize_row(piece.dtype(), piece.row<std::byte>(row), k, values.data());
  for (int64_t i = 0; i < k; ++i) {
    const float v = values[static_cast<size_t>(i)];
    out[i] = to == DType::kBF16 ? float_to_bfloat16(v) : float_to_half(v);
  }
}

// Brings a piece to the GPU, converted where its type is not the packed one's.
void upload(const Context& ctx, const Tensor& piece, DType dtype, std::byte* to) {
  const int64_t k = piece.size(1);
  const size_t row_bytes = dtype_bytes(dtype, k);
  ctx.cuda->upload().rows(ctx, to, piece.size(0), row_bytes, [&](int64_t first, int64_t count, std::byte* memory) {
    std::vector<float> values(piece.dtype() == dtype ? 0 : static_cast<size_t>(k));
    for (int64_t r = first; r < first + count; ++r, memory += row_bytes) {
      if (piece.dtype() == dtype) std::copy_n(piece.row<std::byte>(r), row_bytes, memory);
      else convert_row(piece, r, dtype, values, reinterpret_cast<uint16_t*>(memory));
    }
  });
}

LinearCall make_call(const ops::Input& in, const PackedWeight& w, const Tensor& bias, const Tensor& out) {
  LinearCall call;
  const PackedWeight::Segment& first = w.segments[0];
  call.dtype = first.dtype;
  if (first.layout != kPlain) {
    call.w_scales = reinterpret_cast<const float*>(first.storage.data_as<std::byte>() + scales_offset(w.out_features * w.in_features));
    call.block_scaled = first.layout == kBlockScaled;
  }
  call.w = first.storage.data();
  call.rows = w.out_features;
  call.k = w.in_features;
  call.x = in.x.data();
  call.x_type = in.x.dtype();
  call.x_stride = in.x.stride(0);
  call.num_tokens = in.x.size(0);
  call.norm_weight = in.norm_weight.defined() ? in.norm_weight.data_as<float>() : nullptr;
  call.eps = static_cast<float>(in.eps);
  if (in.scaled.defined()) {
    call.scaled = in.scaled.data();
    call.scaled_stride = in.scaled.stride(0);
    call.squares = in.squares.data_as<float>();
  }
  call.bias = bias.defined() ? bias.data_as<float>() : nullptr;
  call.out = out.data();
  call.out_stride = out.stride(0);
  call.out_type = out.dtype();
  return call;
}

LinearCall without_rope(const LinearCall& call) {
  LinearCall plain = call;
  plain.rope = nullptr;
  plain.rotate = nullptr;
  return plain;
}

// The norm as a kernel of its own: what it gives is the call's from here on.
void norm_apart(const Context& ctx, const ops::Input& in, const Scratch& scratch, LinearCall& call) {
  const Tensor normed = scratch.tensor({call.num_tokens, call.k}, call.x_type);
  rms_norm(ctx, in.x, in.norm_weight, in.eps, normed);
  call.x = normed.data();
  call.x_stride = normed.stride(0);
  call.norm_weight = nullptr;
  call.scaled = nullptr;
  call.squares = nullptr;
}

void by_library(const Context& ctx, LinearCall call, const ops::Input& in, const Tensor& bias, const Tensor& out) {
  const Scratch scratch(ctx);
  if (call.norm_weight != nullptr) norm_apart(ctx, in, scratch, call);
  if (!call.gated) {
    ctx.cuda->cublas_lt().multiply(call);
    if (bias.defined()) add_bias(ctx, bias, out);
    return;
  }
  const Tensor both = scratch.tensor({call.num_tokens, call.rows}, call.out_type);
  LinearCall plain = call;
  plain.gated = false;
  plain.out = both.data();
  plain.out_stride = both.stride(0);
  ctx.cuda->cublas_lt().multiply(plain);
  silu_mul(ctx, both, out);
}

// The same kernel for any number of tokens.
void in_tiles(const Context& ctx, const LinearCall& call) {
  for (int64_t begin = 0; begin < call.num_tokens; begin += kMaxTileTokens) {
    LinearCall part = call;
    part.num_tokens = std::min(kMaxTileTokens, call.num_tokens - begin);
    part.x = static_cast<const std::byte*>(call.x) + dtype_bytes(call.x_type, begin * call.x_stride);
    part.out = static_cast<std::byte*>(call.out) + dtype_bytes(call.out_type, begin * call.out_stride);
    if (call.x_scales != nullptr) part.x_scales = call.x_scales + begin;
    if (call.scaled != nullptr) {
      part.scaled = static_cast<const std::byte*>(call.scaled) + dtype_bytes(call.x_type, begin * call.scaled_stride);
      part.squares = call.squares + begin * ops::norm_parts(call.k);
    }
    if (call.left.weight != nullptr) {
      part.left.scaled = static_cast<std::byte*>(call.left.scaled) + dtype_bytes(call.out_type, begin * call.left.stride);
      part.left.squares = call.left.squares + begin * ops::norm_parts(call.rows);
    }
    if (!linear_tile_can(ctx, part)) {
      throw ConfigError("batch invariance: no kernel for a weight [" + std::to_string(call.rows) + ", " + std::to_string(call.k) +
                        "], whose rows are to be multiples of 16 bytes");
    }
    linear_tile(ctx, part);
  }
}

// Can tiles apply the norm, of which the product before left its part?
bool tiles_can_norm(const Context& ctx, const LinearCall& call) {
  LinearCall part = without_rope(call);
  if (ctx.cuda->batch_invariant()) part.num_tokens = std::min(part.num_tokens, kMaxTileTokens);  // tokens come in parts
  return call.scaled != nullptr && linear_tile_can(ctx, part);
}

// What the norm behind it costs where a product has left nothing for it: part of a trial.
void norm_behind(const Context& ctx, const LinearCall& call) {
  const Tensor weight = Tensor::view(const_cast<float*>(call.left.weight), {call.rows}, DType::kF32, ctx.device);
  const Tensor x = Tensor::view(call.left.scaled, {call.num_tokens, call.rows}, call.out_type, ctx.device);
  rms_norm(ctx, x, weight, 1.0, x);
}

// What stands beside a product that is timed: one by tiles, with the same tokens, of as many rows as q, k and v may have, and
// of as many columns as make it small.
ProductNeighbour neighbour_of(const Context& ctx, const LinearCall& call) {
  constexpr int64_t kRows = 6144, kMostBytes = int64_t{32} << 20, kColumns = 64;
  const auto element = static_cast<int64_t>(dtype_bytes(call.dtype, 1));
  LinearCall other = without_rope(call);
  other.rows = kRows;
  other.k = std::min(call.k, std::min(kMostBytes, call.rows * call.k * element) / (kRows * element)) / kColumns * kColumns;
  other.norm_weight = other.w_scales = other.x_scales = nullptr;
  other.block_scaled = other.gated = other.add = false;
  other.left = {};
  other.bias = nullptr;
  other.out = ctx.cuda->product_choice().trial_output();
  other.out_stride = other.rows;
  if (other.k == 0 || !linear_tile_can(ctx, other)) return {};
  return {kRows * other.k * element, [&ctx, other](const void* w) {
            LinearCall next = other;
            next.w = w;
            linear_tile(ctx, next);
          }};
}

// Up to so many tokens the library's kernels gain nothing on tiles, whichever products of a step take them (bench/product_choices.py):
// they are not tried, and what the times of single products say by chance does no harm. Between those that take nearly the
// same time, tiles are preferred up to so many, which need no kernels for norms beside them.
constexpr int64_t kTilesAlone = 32, kTilesFirst = 48;

// A call whose weight and tokens are of one type, with no norm or with one that tiles can apply, by the fastest kernel.
// Whether it left what call.left asks for.
bool multiply(const Context& ctx, const LinearCall& call, const ops::Input& in, const Tensor& bias, const Tensor& out) {
  const LinearCall plain = without_rope(call);
  if (ctx.cuda->batch_invariant()) {
    in_tiles(ctx, plain);
    if (call.rope != nullptr) (*call.rotate)();
    return call.left.weight != nullptr;
  }
  std::vector<ProductKernel> candidates;
  const bool tile = linear_tile_can(ctx, plain);
  if (tile) candidates.push_back(ProductKernel::kTile);
  // Alone it is often the fastest of a few tokens' kernels, but not between others.
  if (linear_small_can(ctx, plain) && (!tile || call.num_tokens <= kFewTokens)) candidates.push_back(ProductKernel::kSmall);
  const bool library_may_win = ctx.cuda->product_choice().times() && !(tile && call.num_tokens <= kTilesAlone);
  if (!call.block_scaled && (candidates.empty() || library_may_win)) {
    candidates.insert(tile && call.num_tokens > kTilesFirst ? candidates.begin() : candidates.end(), ProductKernel::kLibrary);
  }
  const auto run = [&](ProductKernel kernel, const LinearCall& what, const Tensor& with_bias) {
    if (kernel == ProductKernel::kSmall && linear_small_can(ctx, what)) return linear_small(ctx, what);
    if (kernel == ProductKernel::kTile && linear_tile_can(ctx, what)) return linear_tile(ctx, what);
    const LinearCall apart = without_rope(what);
    if (kernel == ProductKernel::kSmall) linear_small(ctx, apart);
    else if (kernel == ProductKernel::kTile) linear_tile(ctx, apart);
    else by_library(ctx, apart, in, with_bias, out);
    if (what.rope != nullptr) (*what.rotate)();
  };
  LinearCall trial = call;
  if (call.add) trial.out = ctx.cuda->product_choice().trial_output();  // 64 tokens at most: it is large enough
  const ProductKernel kernel = ctx.cuda->product_choice().choose(ctx.cuda->stream(), call, candidates, [&](ProductKernel which, const void* w) {
    trial.w = w;
    run(which, trial, Tensor());
    if (call.left.weight != nullptr && which != ProductKernel::kTile) norm_behind(ctx, call);
  }, neighbour_of(ctx, call));
  run(kernel, call, bias);
  return kernel == ProductKernel::kTile && call.left.weight != nullptr;
}

// FP8 weights as 16-bit ones, some rows at a time.
void multiply_widened(const Context& ctx, const LinearCall& call, const ops::Input& in, const Tensor& bias, const Tensor& out) {
  constexpr int64_t kBytesAtOnce = int64_t{32} << 20;
  const Scratch scratch(ctx);
  const int64_t at_once = std::min(call.rows, std::max(kScaleBlock, kBytesAtOnce / (2 * call.k) / kScaleBlock * kScaleBlock));
  const Tensor wide = scratch.tensor({std::min(at_once, call.rows), call.k}, call.x_type);
  const Tensor to = call.gated ? scratch.tensor({call.num_tokens, call.rows}, call.out_type) : out;
  const Tensor w = Tensor::view(const_cast<void*>(call.w), {call.rows, call.k}, call.dtype, ctx.device);
  for (int64_t first = 0; first < call.rows; first += at_once) {
    const int64_t count = std::min(at_once, call.rows - first);
    dequantize_rows(ctx, w, call.w_scales, call.block_scaled, first, wide.slice(0, 0, count));
    const Tensor columns = to.slice(1, first, count), part_bias = bias.defined() ? bias.slice(0, first, count) : Tensor();
    LinearCall part = without_rope(call);
    part.w = wide.data();
    part.fresh = true;
    part.dtype = call.x_type;
    part.rows = count;
    part.w_scales = nullptr;
    part.block_scaled = part.gated = false;
    part.bias = part_bias.defined() ? part_bias.data_as<float>() : nullptr;
    part.out = columns.data();
    part.out_stride = columns.stride(0);
    multiply(ctx, part, in, part_bias, columns);
  }
  if (call.gated) silu_mul(ctx, to, out);
  if (call.rope != nullptr) (*call.rotate)();
}

// A norm, the rounding of tokens and the product, one after the other. `bias` and `out` are the call's, as tensors. Whether
// it left what call.left asks for.
bool staged(const Context& ctx, LinearCall call, const ops::Input& in, const Tensor& bias, const Tensor& out) {
  const Scratch scratch(ctx);
  if (call.dtype == DType::kF8E4M3 && ctx.cuda->fp8_tokens()) {
    LinearCall rounded = call;
    rounded.x_type = DType::kF8E4M3;
    rounded.x_stride = call.k;
    rounded.norm_weight = nullptr;
    rounded.scaled = nullptr;
    rounded.squares = nullptr;
    LinearCall part = without_rope(rounded);  // as batch invariance has tokens come in
    if (ctx.cuda->batch_invariant()) part.num_tokens = std::min(part.num_tokens, kMaxTileTokens);
    if (!call.block_scaled || linear_tile_can(ctx, part)) {
      const Tensor codes = scratch.tensor({call.num_tokens, call.k}, DType::kF8E4M3), scales = scratch.tensor({call.num_tokens}, DType::kF32);
      quantize_rows(ctx, in.x, in.norm_weight, in.eps, codes, scales);
      rounded.x = codes.data();
      rounded.x_scales = scales.data_as<float>();
      return multiply(ctx, rounded, in, bias, out);
    }
  }
  if (in.norm_weight.defined() && !tiles_can_norm(ctx, call)) norm_apart(ctx, in, scratch, call);
  if (call.dtype != DType::kF8E4M3) return multiply(ctx, call, in, bias, out);
  multiply_widened(ctx, call, in, bias, out);
  return false;
}

// The kernel for few tokens with all that the call asks for in it, where it can and is faster than `others`, which do one
// after the other. False: it was not taken.
bool small_product(const Context& ctx, const LinearCall& call, const Tensor& out, const std::function<void(const LinearCall&, const Tensor&)>& others) {
  // It wins up to so many tokens. With more, every block's work on all of them costs more than the kernels that it spares;
  // but FP8 weights spare the rounding of tokens, too.
  if (ctx.cuda->batch_invariant() || !linear_small_can(ctx, call)) return false;
  ProductKernel kernel = ProductKernel::kSmall;
  if (call.num_tokens > kFewTokens) {
    if (call.dtype != DType::kF8E4M3) return false;
    LinearCall trial = call;
    Tensor trial_out = out;
    if (call.add) {
      trial_out = Tensor::view(ctx.cuda->product_choice().trial_output(), {out.size(0), out.size(1)}, out.dtype(), ctx.device);
      trial.out = trial_out.data();
      trial.out_stride = trial_out.stride(0);
    }
    const ProductKernel candidates[] = {ProductKernel::kSmall, ProductKernel::kStaged};
    kernel = ctx.cuda->product_choice().choose(ctx.cuda->stream(), call, candidates, [&](ProductKernel which, const void* w) {
      trial.w = w;
      if (which == ProductKernel::kSmall) linear_small(ctx, trial);
      else others(trial, trial_out);
    });
  }
  if (kernel != ProductKernel::kSmall) return false;
  if (linear_few_can(ctx, call)) linear_few(ctx, call);
  else linear_small(ctx, call);
  return true;
}

// Whether it left what call.left asks for.
bool product(const Context& ctx, const LinearCall& call, const ops::Input& in, const Tensor& bias, const Tensor& out) {
  CHECK(call.dtype == DType::kF8E4M3 || call.dtype == call.x_type);
  if (small_product(ctx, call, out, [&](const LinearCall& trial, const Tensor& to) { staged(ctx, trial, in, bias, to); })) return false;
  return staged(ctx, call, in, bias, out);
}

}  // namespace

PackedWeight pack_weight(const Context& ctx, std::span<const Tensor> pieces) {
  PackedWeight w;
  w.in_features = pieces[0].size(1);
  for (const Tensor& piece : pieces) w.out_features += piece.size(0);
  const DType dtype = ctx.cuda->activations();
  const Tensor storage =
      Tensor::empty({static_cast<int64_t>(dtype_bytes(dtype, w.out_features * w.in_features))}, DType::kU8, ctx.device);
  int64_t begin = 0;
  for (const Tensor& piece : pieces) {
    const auto bytes = static_cast<int64_t>(dtype_bytes(dtype, piece.size(0) * w.in_features));
    PackedWeight::Segment segment{dtype, piece.size(0), kPlain, storage.slice(0, begin, bytes)};
    upload(ctx, piece, dtype, segment.storage.data_as<std::byte>());
    w.segments.push_back(std::move(segment));
    begin += bytes;
  }
  return w;
}

PackedWeight pack_weight_fp8(const Context& ctx, std::span<const Tensor> pieces, std::span<const Tensor> scales) {
  PackedWeight w;
  w.in_features = pieces[0].size(1);
  for (const Tensor& piece : pieces) w.out_features += piece.size(0);
  if (w.in_features % 16 != 0 || w.out_features % 16 != 0) {
    throw ConfigError("an FP8 weight is [" + std::to_string(w.out_features) + ", " + std::to_string(w.in_features) +
                      "], expected multiples of 16: leave it in BF16");
  }
  const bool by_block = !scales.empty() && scales[0].rank() == 2;
  const int64_t elements = w.out_features * w.in_features, blocks = (w.in_features + kScaleBlock - 1) / kScaleBlock;
  const int64_t num_scales = by_block ? (w.out_features + kScaleBlock - 1) / kScaleBlock * blocks : w.out_features;
  const Tensor storage = Tensor::empty({scales_offset(elements) + 4 * num_scales}, DType::kU8, ctx.device);
  const auto owner = std::make_shared<Tensor>(storage);
  auto* rows = storage.data_as<std::byte>();
  auto* to_scales = reinterpret_cast<float*>(rows + scales_offset(elements));
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int64_t count = pieces[i].size(0), bytes = count * w.in_features;
    const bool is_last = i + 1 == pieces.size();
    if (by_block && !is_last && count % kScaleBlock != 0) {
      throw ConfigError("a part of an FP8 weight with a scale for each 128 x 128 block has " + std::to_string(count) +
                        " rows, expected a multiple of 128: use fewer ranks, or leave it in BF16");
    }
    const int64_t own_scales = by_block ? scales[i].numel() : count;
    if (scales.empty()) {
      const Tensor wide = Tensor::empty({count, w.in_features}, ctx.cuda->activations(), ctx.device);
      upload(ctx, pieces[i], wide.dtype(), wide.data_as<std::byte>());
      quantize_rows(ctx, wide, Tensor(), 0.0, Tensor::view(rows, {count, w.in_features}, DType::kF8E4M3, ctx.device),
                    Tensor::view(to_scales, {count}, DType::kF32, ctx.device));
    } else {
      upload(ctx, pieces[i], DType::kF8E4M3, rows);
      std::vector<float> values(static_cast<size_t>(own_scales));
      const float* from = scales[i].data_as<float>();
      const bool one = scales[i].numel() == 1;
      for (size_t r = 0; r < values.size(); ++r) values[r] = from[one ? 0 : r];
      copy_async(to_scales, values.data(), 4 * values.size(), ctx.cuda->stream());
    }
    synchronize(ctx.cuda->stream());
    const int64_t own = is_last ? bytes + static_cast<int64_t>(storage.bytes()) - elements : bytes;  // the last: scales too
    w.segments.push_back({DType::kF8E4M3, count, by_block ? kBlockScaled : kRowScaled, Tensor::view(rows, {own}, DType::kU8, ctx.device, owner)});
    rows += bytes;
    to_scales += own_scales;
  }
  return w;
}

void linear(const Context& ctx, const ops::Input& x, const PackedWeight& w, const Tensor& bias, const Tensor& out) {
  if (out.numel() == 0) return;
  product(ctx, make_call(x, w, bias, out), x, bias, out);
}

bool linear_add(const Context& ctx, const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& residual,
                const ops::NormAhead& ahead, const cuda_ipc::IpcGroup* ranks) {
  if (residual.numel() == 0) return false;
  LinearCall call = make_call(x, w, bias, residual);
  call.add = true;
  if (ahead.reader != nullptr) {
    const PackedWeight::Segment& first = ahead.reader->segments[0];
    call.next = {first.storage.data(), ahead.reader->out_features, static_cast<int64_t>(dtype_bytes(first.dtype, ahead.reader->in_features))};
  }
  if (ranks != nullptr) {
    call.ranks = ranks;
    linear_few(ctx, call);
    return false;
  }
  // The stream times a norm's weight may be beyond what a half can hold; and FP8 tokens are rounded after the norm.
  if (ahead.weight.defined() && call.dtype == DType::kBF16 && call.out_type == DType::kBF16) {
    call.left = {ahead.weight.data_as<float>(), ahead.scaled.data(), ahead.scaled.stride(0), ahead.squares.data_as<float>()};
  }
  return product(ctx, call, x, bias, residual);
}

bool sums_over_ranks(const Context& ctx, const Tensor& x, const PackedWeight& w, const Tensor& residual) {
  LinearCall call = make_call(x, w, Tensor(), residual);
  call.add = true;
  return !ctx.cuda->batch_invariant() && linear_few_can(ctx, call);
}

void gate_up_silu(const Context& ctx, const ops::Input& x, const PackedWeight& w, const Tensor& out) {
  if (out.numel() == 0) return;
  LinearCall call = make_call(x, w, Tensor(), out);
  call.gated = true;
  product(ctx, call, x, Tensor(), out);
}

bool qkv_rope_write_kv(const Context& ctx, const ops::Input& x, const PackedWeight& w, const Tensor& bias, const Tensor& cos_sin,
                       RopeLayout layout, const AttentionMetadata& meta, const KVLayer& cache, const Tensor& qkv) {
  const int64_t kv_heads = cache.keys.size(1), head_dim = cache.keys.size(3);
  if (qkv.numel() == 0 || layout != RopeLayout::kHalf || 2 * cos_sin.size(2) != head_dim) return false;
  const RopeWrite rope{.cos_sin = cos_sin.data_as<float>(),
                       .positions = meta.positions.data_as<int32_t>(),
                       .slots = meta.slot_mapping.data_as<int64_t>(),
                       .keys = cache.keys.data(),
                       .values = cache.values.data(),
                       .block_size = static_cast<int>(cache.block_size()),
                       .swizzled = cache_is_swizzled(cache),
                       .fp8_cache = cache.keys.dtype() == DType::kF8E4M3,
                       .heads = static_cast<int>(w.out_features / head_dim - 2 * kv_heads),
                       .kv_heads = static_cast<int>(kv_heads),
                       .head_dim = static_cast<int>(head_dim)};
  const std::function<void()> rotate = [&] {
    const int64_t q_size = rope.heads * head_dim, kv_size = kv_heads * head_dim;
    rope_write_kv(ctx, qkv.slice(1, 0, q_size).split_last(rope.heads, head_dim), qkv.slice(1, q_size, kv_size).split_last(kv_heads, head_dim),
                  qkv.slice(1, q_size + kv_size, kv_size).split_last(kv_heads, head_dim), cos_sin, layout, meta, cache);
  };
  LinearCall call = make_call(x, w, bias, qkv);
  call.rope = &rope;
  call.rotate = &rotate;
  product(ctx, call, x, bias, qkv);
  return true;
}

}  // namespace tutti::cuda
