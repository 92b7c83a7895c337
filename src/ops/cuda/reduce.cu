// Kernels that look at whole rows: the largest logit, and rounding to FP8 with a scale for each row, and back.
#include <algorithm>

#include "ops/cuda/device.cuh"
#include "ops/cuda/dispatch.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/largest.cuh"

namespace tutti::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr float kLargestFp8 = 448.0f;

// kVec: elements that are read at once; a row has a multiple of it. gridDim.x blocks share a row, whose keys are left in `parts`
// [rows, gridDim.x]; where there are `values`, the block that arrives last joins them.
template <int kVec>
__global__ void __launch_bounds__(kThreads)
    argmax_kernel(const float* x, int64_t stride, int columns, int first, LargestKey* parts, unsigned* arrivals, float* values,
                  int32_t* indices) {
  __shared__ LargestKey best[kThreads / 32];
  __shared__ bool last;
  let_next_start();
  wait_for_previous();
  const float* row = x + blockIdx.y * stride;
  LargestKey mine = 0;
#pragma unroll 4
  for (int i = (blockIdx.x * kThreads + threadIdx.x) * kVec; i < columns; i += gridDim.x * kThreads * kVec) {
    float v[kVec];
    load(row + i, v);
    float most = v[0];
    int at = i;  // the first of the largest
#pragma unroll
    for (int j = 1; j < kVec; ++j) {
      if (v[j] > most || (most != most && v[j] == v[j])) most = v[j], at = i + j;
    }
    mine = larger(mine, key_of(most, at));
  }
  mine = warp_largest(mine);
  if (threadIdx.x % 32 == 0) best[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  mine = warp_largest(best[threadIdx.x]);
  LargestKey* row_parts = parts + static_cast<int64_t>(blockIdx.y) * gridDim.x;
  if (values == nullptr) {
    if (threadIdx.x == 0) row_parts[blockIdx.x] = mine;
    return;
  }
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) {
      row_parts[blockIdx.x] = mine;
      __threadfence();
      last = atomicAdd(&arrivals[blockIdx.y], 1u) == gridDim.x - 1;
      if (last) arrivals[blockIdx.y] = 0;
      __threadfence();
    }
    __syncwarp();
    if (!last) return;
    mine = warp_largest(threadIdx.x < gridDim.x ? __ldcg(row_parts + threadIdx.x) : 0);
  }
  if (threadIdx.x != 0) return;
  indices[blockIdx.y] = first + index_of(mine);
  values[blockIdx.y] = value_of(mine);
}

// A thread for each column of parts [num_parts, 2, n].
__global__ void best_of_parts_kernel(const int32_t* parts, int num_parts, int n, float* values, int32_t* indices) {
  let_next_start();
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  LargestKey best = 0;
  float value = 0;
  int32_t index = 0;
  for (int part = 0; part < num_parts; ++part) {
    const int32_t* own = parts + static_cast<int64_t>(part) * 2 * n;
    const LargestKey key = key_of(__int_as_float(own[n + i]), own[i]);
    if (part > 0 && key <= best) continue;
    best = key;
    value = __int_as_float(own[n + i]);
    index = own[i];
  }
  values[i] = value;
  indices[i] = index;
}

// Elements [i, i + kVec) of a row, times the norm's weight where there is one.
template <typename T, int kVec>
__device__ __forceinline__ void load_weighted(const T* row, const float* weight, int i, float (&v)[kVec], float& squares) {
  load(row + i, v);
  if (weight == nullptr) return;
  float w[kVec];
  load(weight + i, w);
#pragma unroll
  for (int j = 0; j < kVec; ++j) {
    squares += v[j] * v[j];
    v[j] *= w[j];
  }
}

template <typename T, int kVec>
__global__ void quantize_kernel(const T* x, int64_t stride, const float* weight, float eps, int k, fp8* out, float* scales) {
  __shared__ float partial[2][32];
  let_next_start();
  wait_for_previous();
  const T* row = x + blockIdx.x * stride;
  const int first = threadIdx.x * kVec, step = blockDim.x * kVec;
  float kept[kVec] = {};  // this thread's first elements; the others are read again
  float most = 0, squares = 0;
  for (int i = first; i < k; i += step) {
    float v[kVec];
    load_weighted(row, weight, i, v, squares);
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      most = fmaxf(most, fabsf(v[j]));
      if (i == first) kept[j] = v[j];
    }
  }
  most = block_max(most, partial[0]);
  float factor = 1.0f;  // of the norm
  if (weight != nullptr) factor = rsqrtf(block_sum(squares, partial[1]) / k + eps);
  const float scale = most > 0 ? most * factor / kLargestFp8 : 1.0f, inverse = factor / scale;
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  fp8* to = out + static_cast<int64_t>(blockIdx.x) * k;
  for (int i = first; i < k; i += step) {
    float v[kVec];
    if (i == first) {
#pragma unroll
      for (int j = 0; j < kVec; ++j) v[j] = kept[j];
    } else {
      load_weighted(row, weight, i, v, squares);
    }
#pragma unroll
    for (int j = 0; j < kVec; ++j) v[j] *= inverse;
    store(to + i, v);
  }
}

// A block for each row of out; w and block_scales start at the weight's first row, row_scales too.
template <typename T>
__global__ void dequantize_kernel(const fp8* w, const float* scales, bool by_block, int first, int k, T* out, int64_t stride) {
  constexpr int kVec = 8, kBlock = 128;
  let_next_start();
  const int row = first + static_cast<int>(blockIdx.x), blocks = (k + kBlock - 1) / kBlock;
  const fp8* from = w + static_cast<int64_t>(row) * k;
  const float* row_scales = by_block ? scales + static_cast<int64_t>(row / kBlock) * blocks : scales + row;
  wait_for_previous();  // which reads what `out` held
  for (int i = threadIdx.x * kVec; i < k; i += blockDim.x * kVec) {
    float v[kVec];
    load(from + i, v);
    const float scale = row_scales[by_block ? i / kBlock : 0];
#pragma unroll
    for (int j = 0; j < kVec; ++j) v[j] *= scale;
    store(out + blockIdx.x * stride + i, v);
  }
}

// Room for them: as many parts of each row as make the GPU busy.
Tensor keys_of_parts(const Context& ctx, const Scratch& scratch, const Tensor& x) {
  constexpr int64_t kMaxParts = 32;  // a warp joins them
  const int64_t rows = x.size(0), wanted = std::max<int64_t>(1, ctx.cuda->num_sms() / rows);
  const int64_t parts = rows > CudaContext::kCounters ? 1 : std::min({wanted, kMaxParts, (x.size(1) + 4 * kThreads - 1) / (4 * kThreads)});
  return scratch.tensor({rows, parts}, DType::kI64);
}

void launch_argmax(const Context& ctx, const Tensor& x, int first, const Tensor& keys, float* values, int32_t* indices) {
  launch(ctx, rows_aligned(x, 16) ? argmax_kernel<4> : argmax_kernel<1>,
         dim3(static_cast<unsigned>(keys.size(1)), static_cast<unsigned>(x.size(0))), dim3(kThreads), 0, x.data_as<float>(), x.stride(0),
         static_cast<int>(x.size(1)), first, keys.data_as<LargestKey>(), ctx.cuda->counters(), values, indices);
}

}  // namespace

void dequantize_rows(const Context& ctx, const Tensor& w, const float* scales, bool by_block, int64_t first, const Tensor& out) {
  if (out.numel() == 0) return;
  const int k = static_cast<int>(w.size(1));
  CHECK(k % 8 == 0 && rows_aligned(out, 16));
  by_activation(out.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    launch(ctx, dequantize_kernel<T>, dim3(static_cast<unsigned>(out.size(0))), dim3(256), 0, static_cast<const fp8*>(w.data()), scales,
           by_block, static_cast<int>(first), k, out.data_as<T>(), out.stride(0));
  });
}

void argmax(const Context& ctx, const Tensor& x, const Tensor& values, const Tensor& indices, int64_t first) {
  if (x.size(0) == 0) return;
  const Scratch scratch(ctx);
  launch_argmax(ctx, x, static_cast<int>(first), keys_of_parts(ctx, scratch, x), values.data_as<float>(), indices.data_as<int32_t>());
}

Tensor largest_of_parts(const Context& ctx, const Scratch& scratch, const Tensor& x) {
  const Tensor keys = keys_of_parts(ctx, scratch, x);
  launch_argmax(ctx, x, 0, keys, nullptr, nullptr);
  return keys;
}

void best_of_parts(const Context& ctx, const Tensor& parts, const Tensor& values, const Tensor& indices) {
  const int n = static_cast<int>(parts.size(2));
  if (n == 0) return;
  launch(ctx, best_of_parts_kernel, dim3(static_cast<unsigned>((n + 127) / 128)), dim3(128), 0, parts.data_as<int32_t>(),
         static_cast<int>(parts.size(0)), n, values.data_as<float>(), indices.data_as<int32_t>());
}

void quantize_rows(const Context& ctx, const Tensor& x, const Tensor& norm_weight, double eps, const Tensor& out, const Tensor& scales) {
  if (x.numel() == 0) return;
  const int k = static_cast<int>(x.size(1));
  const bool wide = rows_aligned(x, 16) && rows_aligned(out, 8) && (!norm_weight.defined() || rows_aligned(norm_weight, 16));
  const auto* weight = norm_weight.defined() ? norm_weight.data_as<float>() : nullptr;
  const int threads = std::min(kThreads, (k / (wide ? 8 : 1) + 31) / 32 * 32);
  by_activation(x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    launch(ctx, wide ? quantize_kernel<T, 8> : quantize_kernel<T, 1>, dim3(static_cast<unsigned>(x.size(0))),
           dim3(static_cast<unsigned>(std::max(threads, 32))), 0, x.data_as<T>(), x.stride(0), weight, static_cast<float>(eps), k,
           static_cast<fp8*>(out.data()), scales.data_as<float>());
  });
}

}  // namespace tutti::cuda
