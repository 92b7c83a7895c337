// Weights of the CUDA backend, and which kernel a product takes: one of those that stream weights, or cuBLASLt. A packed weight is its pieces' rows one below the other, in one allocation.
//
// FP8 weights: E4M3 rows, then (layout kRowScaled) one F32 scale for each row.
#include <algorithm>
#include <functional>
#include <vector>

#include "base/check.h"
#include "ops/cuda/cublas_lt.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/product_choice.h"
#include "ops/cuda/upload.h"
#include "tensor/dequantize.h"
#include "tensor/device_memory.h"
#include "tensor/half.h"

namespace tutti::cuda {
namespace {

constexpr int kPlain = 0, kRowScaled = 1;  // layouts
constexpr int64_t kFewTokens = 2;  // up to which linear_small.cu always wins

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

// Where the scales of an FP8 weight of `elements` bytes start.
int64_t scales_offset(int64_t elements) { return (elements + 15) / 16 * 16; }

LinearCall make_call(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& out) {
  LinearCall call;
  call.dtype = w.segments[0].dtype;
  if (w.segments[0].layout == kRowScaled) {
    call.w_scales = reinterpret_cast<const float*>(w.segments[0].storage.data_as<std::byte>() + scales_offset(w.out_features * w.in_features));
  }
  call.w = w.segments[0].storage.data();
  call.rows = w.out_features;
  call.k = w.in_features;
  call.x = x.data();
  call.x_stride = x.stride(0);
  call.num_tokens = x.size(0);
  call.bias = bias.defined() ? bias.data_as<float>() : nullptr;
  call.out = out.data();
  call.out_stride = out.stride(0);
  call.out_type = out.dtype();
  return call;
}

// FP8 weights meet FP8 tokens, which live in `scratch`.
LinearCall with_tokens(const Context& ctx, LinearCall call, const Tensor& x, const Scratch& scratch) {
  if (call.dtype != DType::kF8E4M3) {
    CHECK(x.dtype() == call.dtype);
    return call;
  }
  const Tensor rounded = scratch.tensor({x.size(0), x.size(1)}, DType::kF8E4M3), scales = scratch.tensor({x.size(0)}, DType::kF32);
  quantize_rows(ctx, x, rounded, scales);
  call.x = rounded.data();
  call.x_stride = rounded.stride(0);
  call.x_scales = scales.data_as<float>();
  return call;
}

// By the fastest kernel; `by_library` computes the same through cuBLASLt.
void multiply(const Context& ctx, const LinearCall& call, const std::function<void()>& by_library) {
  std::vector<ProductKernel> candidates;
  if (linear_small_can(ctx, call)) candidates.push_back(ProductKernel::kSmall);
  if (call.num_tokens > kFewTokens && linear_tile_can(ctx, call)) candidates.push_back(ProductKernel::kTile);
  if (call.num_tokens > kFewTokens || candidates.empty()) candidates.push_back(ProductKernel::kLibrary);
  const auto run = [&](ProductKernel kernel) {
    if (kernel == ProductKernel::kSmall) linear_small(ctx, call);
    else if (kernel == ProductKernel::kTile) linear_tile(ctx, call);
    else by_library();
  };
  run(ctx.cuda->product_choice().choose(ctx.cuda->stream(), call, candidates, run));
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
  if (ctx.cuda->capability() < 89) {
    throw ConfigError("FP8 weights on " + to_string(ctx.device) + ": its compute capability is " +
                      std::to_string(ctx.cuda->capability() / 10) + "." + std::to_string(ctx.cuda->capability() % 10) +
                      ", expected 8.9 or later: leave the weights in BF16");
  }
  if (w.in_features % 16 != 0 || w.out_features % 16 != 0) {
    throw ConfigError("an FP8 weight is [" + std::to_string(w.out_features) + ", " + std::to_string(w.in_features) +
                      "], expected multiples of 16: leave it in BF16");
  }
  const int64_t elements = w.out_features * w.in_features, scales_at = scales_offset(elements);
  const Tensor storage = Tensor::empty({scales_at + 4 * w.out_features}, DType::kU8, ctx.device);
  const auto owner = std::make_shared<Tensor>(storage);
  auto* rows = storage.data_as<std::byte>();
  auto* row_scales = reinterpret_cast<float*>(rows + scales_at);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int64_t count = pieces[i].size(0), bytes = count * w.in_features;
    const Tensor to = Tensor::view(rows, {count, w.in_features}, DType::kF8E4M3, ctx.device);
    const Tensor to_scales = Tensor::view(row_scales, {count}, DType::kF32, ctx.device);
    if (scales.empty()) {
      const Tensor wide = Tensor::empty({count, w.in_features}, ctx.cuda->activations(), ctx.device);
      upload(ctx, pieces[i], wide.dtype(), wide.data_as<std::byte>());
      quantize_rows(ctx, wide, to, to_scales);
      synchronize(ctx.cuda->stream());
    } else {
      upload(ctx, pieces[i], DType::kF8E4M3, rows);
      std::vector<float> one_each(static_cast<size_t>(count));
      for (int64_t r = 0; r < count; ++r) {
        one_each[static_cast<size_t>(r)] = scales[i].data_as<float>()[scales[i].size(0) == 1 ? 0 : r];
      }
      copy_async(row_scales, one_each.data(), 4 * one_each.size(), ctx.cuda->stream());
      synchronize(ctx.cuda->stream());
    }
    const int64_t own = i + 1 == pieces.size() ? bytes + static_cast<int64_t>(storage.bytes()) - elements : bytes;  // the last: scales too
    w.segments.push_back({DType::kF8E4M3, count, kRowScaled, Tensor::view(rows, {own}, DType::kU8, ctx.device, owner)});
    rows += bytes;
    row_scales += count;
  }
  return w;
}

void linear(const Context& ctx, const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& out) {
  if (out.numel() == 0) return;
  const Scratch scratch(ctx);
  const LinearCall call = with_tokens(ctx, make_call(x, w, bias, out), x, scratch);
  multiply(ctx, call, [&] {
    ctx.cuda->cublas_lt().multiply(call);
    if (bias.defined()) add_bias(ctx, bias, out);
  });
}

void gate_up_silu(const Context& ctx, const Tensor& x, const PackedWeight& w, const Tensor& out) {
  if (out.numel() == 0) return;
  const Scratch scratch(ctx);
  LinearCall call = with_tokens(ctx, make_call(x, w, Tensor(), out), x, scratch);
  call.gated = true;
  multiply(ctx, call, [&] {
    const Scratch inner(ctx);
    const Tensor both = inner.tensor({x.size(0), w.out_features}, x.dtype());
    LinearCall plain = call;
    plain.gated = false;
    plain.out = both.data();
    plain.out_stride = both.stride(0);
    plain.out_type = both.dtype();
    ctx.cuda->cublas_lt().multiply(plain);
    silu_mul(ctx, both, out);
  });
}

}  // namespace tutti::cuda
