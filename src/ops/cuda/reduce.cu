// Kernels that look at whole rows: the largest logit, and rounding to FP8 with a scale for each row, and back.
#include <algorithm>

#include "ops/cuda/device.cuh"
#include "ops/cuda/dispatch.h"
#include "ops/cuda/kernels.h"

namespace tutti::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr float kLargestFp8 = 448.0f;

// Orders floats, NaN first, and equal ones by falling index: the larger key is the better element.
__device__ __forceinline__ uint64_t key_of(float x, int index) {
  const uint32_t bits = __float_as_uint(x == 0.0f ? 0.0f : x);  // both zeros are equal
  const uint32_t ordered = x != x ? 0u : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<uint32_t>(index));
}

__device__ __forceinline__ uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

__device__ __forceinline__ uint64_t warp_largest(uint64_t key) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) key = larger(key, __shfl_xor_sync(kAllLanes, key, offset));
  return key;
}

// kVec: elements that are read at once; a row has a multiple of it. gridDim.x blocks share a row; the one that arrives last joins their keys in `parts` [rows, gridDim.x].
template <int kVec>
__global__ void __launch_bounds__(kThreads)
    argmax_kernel(const float* x, int64_t stride, int columns, int first, uint64_t* parts, unsigned* arrivals, float* values,
                  int32_t* indices) {
  __shared__ uint64_t best[kThreads / 32];
  __shared__ bool last;
  let_next_start();
  wait_for_previous();
  const float* row = x + blockIdx.y * stride;
  uint64_t mine = 0;
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
  if (gridDim.x > 1) {
    uint64_t* row_parts = parts + static_cast<int64_t>(blockIdx.y) * gridDim.x;
    if (threadIdx.x == 0) {
      row_parts[blockIdx.x] = mine;
      __threadfence();
      last = atomicAdd(&arrivals[blockIdx.y], 1u) == gridDim.x - 1;
      if (last) arrivals[blockIdx.y] = 0;
      __threadfence();
    }
    __syncwarp();
    if (!last) return;
    mine = warp_largest(threadIdx.x < gridDim.x ? __ldcg(reinterpret_cast<const unsigned long long*>(row_parts) + threadIdx.x) : 0);
  }
  if (threadIdx.x != 0) return;
  const auto index = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(mine));
  indices[blockIdx.y] = first + index;
  values[blockIdx.y] = row[index];
}

// A thread for each column of parts [num_parts, 2, n].
__global__ void best_of_parts_kernel(const int32_t* parts, int num_parts, int n, float* values, int32_t* indices) {
  let_next_start();
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  uint64_t best = 0;
  float value = 0;
  int32_t index = 0;
  for (int part = 0; part < num_parts; ++part) {
    const int32_t* own = parts + static_cast<int64_t>(part) * 2 * n;
    const uint64_t key = key_of(__int_as_float(own[n + i]), own[i]);
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
  const int64_t rows = x.size(0), columns = x.size(1);
  if (rows == 0) return;
  constexpr int64_t kMaxParts = 32;  // a warp joins them
  const int64_t wanted = std::max<int64_t>(1, ctx.cuda->num_sms() / rows);
  const int64_t parts = rows > CudaContext::kCounters ? 1 : std::min({wanted, kMaxParts, (columns + 4 * kThreads - 1) / (4 * kThreads)});
  const Scratch scratch(ctx);
  const Tensor keys = scratch.tensor({rows * parts}, DType::kI64);
  const bool wide = rows_aligned(x, 16);
  launch(ctx, wide ? argmax_kernel<4> : argmax_kernel<1>, dim3(static_cast<unsigned>(parts), static_cast<unsigned>(rows)), dim3(kThreads), 0, x.data_as<float>(),
         x.stride(0), static_cast<int>(columns), static_cast<int>(first), keys.data_as<uint64_t>(), ctx.cuda->counters(),
         values.data_as<float>(), indices.data_as<int32_t>());
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
