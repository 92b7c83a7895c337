// Norms, additions, row copies: kernels that read and write each element once.
#include <algorithm>

#include "ops/cuda/device.cuh"
#include "ops/cuda/dispatch.h"
#include "ops/cuda/kernels.h"

namespace tutti::cuda {
namespace {

// Rows of a tensor of rank 2 or 3: row r starts at (r / inner) * outer_stride + (r % inner) * inner_stride.
struct Rows {
  int64_t inner = 1;
  int64_t outer_stride = 0;
  int64_t inner_stride = 0;
  __host__ __device__ int64_t operator()(int64_t r) const { return (r / inner) * outer_stride + (r % inner) * inner_stride; }
};

Rows rows_of(const Tensor& x) {
  if (x.rank() == 2) return {1, x.stride(0), 0};
  return {x.size(1), x.stride(0), x.stride(1)};
}

// y = x / sqrt(mean(x^2) + eps) * weight, with x += delta before it when kAdd. `kWarp`: a warp takes a row and a block
// several; else a block takes one.
template <typename T, int kVec, bool kAdd, bool kWarp>
__global__ void norm_kernel(T* x, Rows x_rows, const T* delta, Rows delta_rows, const float* weight, float eps, T* out, Rows out_rows,
                            int64_t num_rows, int n) {
  __shared__ float partial[32];
  const int threads = kWarp ? 32 : blockDim.x;
  const int first = threadIdx.x * kVec, step = threads * kVec;
  float w[kVec] = {};
  if (first < n) load(weight + first, w);
  let_next_start();
  wait_for_previous();
  const int64_t row = kWarp ? static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y : blockIdx.x;
  if (row >= num_rows) return;  // whole warps only
  T* source = x + x_rows(row);
  const T* added = kAdd ? delta + delta_rows(row) : nullptr;
  T* target = out + out_rows(row);

  float kept[kVec] = {};  // this thread's first elements; the others are read again
  float squares = 0;
  for (int i = first; i < n; i += step) {
    float v[kVec];
    load(source + i, v);
    if (kAdd) {
      float d[kVec];
      load(added + i, d);
#pragma unroll
      for (int j = 0; j < kVec; ++j) v[j] = to_float(from_float<T>(v[j] + d[j]));
      store(source + i, v);
    }
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      squares += v[j] * v[j];
      if (i == first) kept[j] = v[j];
    }
  }
  squares = kWarp ? warp_sum(squares) : block_sum(squares, partial);
  const float factor = rsqrtf(squares / n + eps);
  for (int i = first; i < n; i += step) {
    float v[kVec], y[kVec];
    if (i == first) {
#pragma unroll
      for (int j = 0; j < kVec; ++j) v[j] = kept[j];
    } else {
      load(source + i, v);
      load(weight + i, w);
    }
#pragma unroll
    for (int j = 0; j < kVec; ++j) y[j] = v[j] * factor * w[j];
    store(target + i, y);
  }
}

template <typename T, int kVec, bool kAdd>
void norm(const Context& ctx, const Tensor& x, const Tensor& delta, const Tensor& weight, double eps, const Tensor& out) {
  const int n = static_cast<int>(x.size(x.rank() - 1));
  const int64_t rows = x.numel() / std::max(n, 1);
  if (rows == 0) return;
  const Rows delta_rows = kAdd ? rows_of(delta) : Rows{};
  const auto* d = static_cast<const T*>(delta.data());
  if (n <= 4 * 32 * kVec) {
    launch(ctx, norm_kernel<T, kVec, kAdd, true>, dim3(static_cast<unsigned>((rows + 3) / 4)), dim3(32, 4), 0, x.data_as<T>(),
           rows_of(x), d, delta_rows, weight.data_as<float>(), static_cast<float>(eps), out.data_as<T>(), rows_of(out), rows, n);
  } else {
    const int threads = std::min(1024, (n / kVec + 31) / 32 * 32);
    launch(ctx, norm_kernel<T, kVec, kAdd, false>, dim3(static_cast<unsigned>(rows)), dim3(static_cast<unsigned>(threads)), 0,
           x.data_as<T>(), rows_of(x), d, delta_rows, weight.data_as<float>(), static_cast<float>(eps), out.data_as<T>(),
           rows_of(out), rows, n);
  }
}

template <bool kAdd>
void norm_of_any(const Context& ctx, const Tensor& x, const Tensor& delta, const Tensor& weight, double eps, const Tensor& out) {
  const bool wide = rows_aligned(x, 16) && rows_aligned(out, 16) && rows_aligned(weight, 16) && (!kAdd || rows_aligned(delta, 16));
  by_activation(x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    if (wide) norm<T, 8, kAdd>(ctx, x, delta, weight, eps, out);
    else norm<T, 1, kAdd>(ctx, x, delta, weight, eps, out);
  });
}

template <typename T, int kVec>
__global__ void add_kernel(T* x, int64_t x_stride, const T* y, int64_t y_stride, int64_t count, int columns) {
  let_next_start();
  wait_for_previous();
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kVec;
  if (i >= count) return;
  T* to = x + i / columns * x_stride + i % columns;
  float a[kVec], b[kVec];
  load(to, a);
  load(y + i / columns * y_stride + i % columns, b);
#pragma unroll
  for (int j = 0; j < kVec; ++j) a[j] += b[j];
  store(to, a);
}

template <typename T>
__global__ void add_bias_kernel(const float* bias, T* out, int64_t out_stride, int64_t count, int columns) {
  let_next_start();
  wait_for_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  T* to = out + i / columns * out_stride + i % columns;
  *to = from_float<T>(to_float(*to) + bias[i % columns]);
}

template <typename T, int kVec>
__global__ void silu_mul_kernel(const T* x, int64_t x_stride, T* out, int64_t out_stride, int64_t count, int columns) {
  let_next_start();
  wait_for_previous();
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kVec;
  if (i >= count) return;
  const T* from = x + i / columns * x_stride + i % columns;
  float gate[kVec], up[kVec];
  load(from, gate);
  load(from + columns, up);
#pragma unroll
  for (int j = 0; j < kVec; ++j) gate[j] = silu(gate[j]) * up[j];
  store(out + i / columns * out_stride + i % columns, gate);
}

// Rows of `words` units of kBytes each: out[i] = source[index[i] - first], zeros for rows outside [0, num_rows). An index -1 - j
// stands for chosen[j], where there are such.
template <typename Word>
__global__ void copy_rows_kernel(const Word* source, int64_t source_stride, int64_t num_rows, const int32_t* index, const int32_t* chosen,
                                 int64_t first, Word* out, int64_t out_stride, int words) {
  let_next_start();
  wait_for_previous();
  const int32_t given = index[blockIdx.x];
  const int64_t row = (given < 0 && chosen != nullptr ? chosen[-1 - given] : given) - first;
  const bool inside = row >= 0 && row < num_rows;
  for (int i = threadIdx.x; i < words; i += blockDim.x) {
    out[blockIdx.x * out_stride + i] = inside ? source[row * source_stride + i] : Word{};
  }
}

void copy_rows(const Context& ctx, const void* source, int64_t source_row_bytes, int64_t num_rows, const Tensor& index,
               const int32_t* chosen, int64_t first, const Tensor& out, int64_t row_bytes) {
  if (index.size(0) == 0 || row_bytes == 0) return;
  const auto out_row_bytes = static_cast<int64_t>(out.stride_bytes(0));
  const auto go = [&](auto word) {
    using Word = decltype(word);
    constexpr auto kBytes = static_cast<int64_t>(sizeof(Word));
    const int words = static_cast<int>(row_bytes / kBytes);
    launch(ctx, copy_rows_kernel<Word>, dim3(static_cast<unsigned>(index.size(0))), dim3(std::min(256, (words + 31) / 32 * 32)), 0,
           static_cast<const Word*>(source), source_row_bytes / kBytes, num_rows, index.data_as<int32_t>(), chosen,
           first, out.data_as<Word>(), out_row_bytes / kBytes, words);
  };
  const auto bits = reinterpret_cast<uintptr_t>(source) | reinterpret_cast<uintptr_t>(out.data()) |
                    static_cast<uintptr_t>(source_row_bytes | out_row_bytes | row_bytes);
  if (bits % 16 == 0) go(uint4{});
  else if (bits % 4 == 0) go(uint32_t{});
  else go(uint16_t{});
}

// The first blocks copy what lies in one piece, each of the others a row.
__global__ void copy_with_table_kernel(const int32_t* from, int32_t* to, int64_t count, int blocks, const int32_t* table, int64_t stride,
                                       int32_t* to_table, int64_t to_stride, int columns) {
  let_next_start();
  wait_for_previous();
  if (static_cast<int>(blockIdx.x) < blocks) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) to[i] = from[i];
    return;
  }
  const int64_t row = static_cast<int>(blockIdx.x) - blocks;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) to_table[row * to_stride + i] = table[row * stride + i];
}

unsigned blocks_for(int64_t items) { return static_cast<unsigned>((items + 255) / 256); }

}  // namespace

void embedding(const Context& ctx, const ops::TokenIds& tokens, const PackedWeight& table, int64_t vocab_begin, const Tensor& out) {
  CHECK(table.segments[0].dtype == out.dtype());
  const int64_t row_bytes = static_cast<int64_t>(dtype_bytes(out.dtype(), table.in_features));
  const auto* chosen = tokens.chosen.defined() ? tokens.chosen.data_as<int32_t>() : nullptr;
  copy_rows(ctx, table.segments[0].storage.data(), row_bytes, table.out_features, tokens.ids, chosen, vocab_begin, out, row_bytes);
}

void gather_rows(const Context& ctx, const Tensor& x, const Tensor& rows, const Tensor& out) {
  copy_rows(ctx, x.data(), static_cast<int64_t>(x.stride_bytes(0)), x.size(0), rows, nullptr, 0, out,
            static_cast<int64_t>(dtype_bytes(x.dtype(), x.size(1))));
}

void copy_with_table(const Context& ctx, const Tensor& from, const Tensor& to, const Tensor& table, const Tensor& to_table) {
  const int64_t rows = table.size(1) == 0 ? 0 : table.size(0);
  const unsigned blocks = blocks_for(from.size(0));
  if (blocks + rows == 0) return;
  launch(ctx, copy_with_table_kernel, dim3(blocks + static_cast<unsigned>(rows)), dim3(256), 0, from.data_as<int32_t>(), to.data_as<int32_t>(),
         from.size(0), static_cast<int>(blocks), table.data_as<int32_t>(), table.stride(0), to_table.data_as<int32_t>(), to_table.stride(0),
         static_cast<int>(table.size(1)));
}

void rms_norm(const Context& ctx, const Tensor& x, const Tensor& weight, double eps, const Tensor& out) {
  norm_of_any<false>(ctx, x, Tensor(), weight, eps, out);
}

void add_rms_norm(const Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& weight, double eps, const Tensor& out) {
  norm_of_any<true>(ctx, residual, delta, weight, eps, out);
}

void add(const Context& ctx, const Tensor& x, const Tensor& y) {
  const int64_t count = x.numel();
  if (count == 0) return;
  const int columns = static_cast<int>(x.size(1));
  by_activation(x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const bool wide = rows_aligned(x, 16) && rows_aligned(y, 16);
    launch(ctx, wide ? add_kernel<T, 8> : add_kernel<T, 1>, dim3(blocks_for(wide ? count / 8 : count)), dim3(256), 0, x.data_as<T>(),
           x.stride(0), y.data_as<T>(), y.stride(0), count, columns);
  });
}

void add_bias(const Context& ctx, const Tensor& bias, const Tensor& out) {
  if (out.numel() == 0) return;
  by_output(out.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    launch(ctx, add_bias_kernel<T>, dim3(blocks_for(out.numel())), dim3(256), 0, bias.data_as<float>(), out.data_as<T>(), out.stride(0),
           out.numel(), static_cast<int>(out.size(1)));
  });
}

void silu_mul(const Context& ctx, const Tensor& x, const Tensor& out) {
  const int64_t count = out.numel();
  if (count == 0) return;
  by_activation(x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const bool wide = rows_aligned(x, 16) && rows_aligned(out, 16);
    launch(ctx, wide ? silu_mul_kernel<T, 8> : silu_mul_kernel<T, 1>, dim3(blocks_for(wide ? count / 8 : count)), dim3(256), 0,
           x.data_as<T>(), x.stride(0), out.data_as<T>(), out.stride(0), count, static_cast<int>(out.size(1)));
  });
}

}  // namespace tutti::cuda
