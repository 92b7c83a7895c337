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
#include "tensor/dequantize.h"
#include "tensor/device_memory.h"
#include "tensor/half.h"

namespace tutti::cuda {
namespace {

constexpr int kPlain = 0;
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

// Copies a piece, row by row through a pinned buffer when its type or its stride is not the packed one's.
void upload(const Context& ctx, const Tensor& piece, DType dtype, std::byte* to) {
  const int64_t rows = piece.size(0), k = piece.size(1);
  if (rows == 0 || k == 0) return;
  const size_t row_bytes = dtype_bytes(dtype, k);
  if (piece.dtype() == dtype && piece.is_contiguous()) {
    copy_async(to, piece.data(), piece.bytes(), ctx.cuda->stream());
    synchronize(ctx.cuda->stream());
    return;
  }
  const int64_t rows_at_once = std::clamp<int64_t>((int64_t{8} << 20) / static_cast<int64_t>(row_bytes), 1, rows);
  const auto staging = allocate_pinned(static_cast<size_t>(rows_at_once) * row_bytes);
  std::vector<float> values(static_cast<size_t>(k));
  for (int64_t begin = 0; begin < rows; begin += rows_at_once) {
    const int64_t count = std::min(rows_at_once, rows - begin);
    for (int64_t r = 0; r < count; ++r) {
      std::byte* row = staging->data() + static_cast<size_t>(r) * row_bytes;
      if (piece.dtype() == dtype) std::copy_n(piece.row<std::byte>(begin + r), row_bytes, row);
      else convert_row(piece, begin + r, dtype, values, reinterpret_cast<uint16_t*>(row));
    }
    copy_async(to + static_cast<size_t>(begin) * row_bytes, staging->data(), static_cast<size_t>(count) * row_bytes, ctx.cuda->stream());
    synchronize(ctx.cuda->stream());
  }
}

LinearCall make_call(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& out) {
  LinearCall call;
  call.dtype = w.segments[0].dtype;
  CHECK(x.dtype() == call.dtype);
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

void linear(const Context& ctx, const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& out) {
  if (out.numel() == 0) return;
  const LinearCall call = make_call(x, w, bias, out);
  multiply(ctx, call, [&] {
    ctx.cuda->cublas_lt().multiply(call);
    if (bias.defined()) add_bias(ctx, bias, out);
  });
}

void gate_up_silu(const Context& ctx, const Tensor& x, const PackedWeight& w, const Tensor& out) {
  if (out.numel() == 0) return;
  LinearCall call = make_call(x, w, Tensor(), out);
  call.gated = true;
  multiply(ctx, call, [&] {
    const Scratch scratch(ctx);
    const Tensor both = scratch.tensor({x.size(0), w.out_features}, x.dtype());
    ctx.cuda->cublas_lt().multiply(make_call(x, w, Tensor(), both));
    silu_mul(ctx, both, out);
  });
}

}  // namespace tutti::cuda
