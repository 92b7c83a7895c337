// From a tensor's element type to a C++ type, and what vector loads ask of a tensor.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>
#include <utility>

#include "base/check.h"
#include "tensor/tensor.h"

namespace tutti::cuda {

// Calls f(std::type_identity<T>) for the activations' type.
template <typename F>
void by_activation(DType dtype, F&& f) {
  if (dtype == DType::kBF16) return f(std::type_identity<__nv_bfloat16>{});
  CHECK(dtype == DType::kF16);
  f(std::type_identity<__half>{});
}

// The same, or F32 (logits).
template <typename F>
void by_output(DType dtype, F&& f) {
  if (dtype == DType::kF32) return f(std::type_identity<float>{});
  by_activation(dtype, std::forward<F>(f));
}

// Do all rows start, and end, at a multiple of `bytes`?
inline bool rows_aligned(const Tensor& x, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(x.data()) % bytes != 0) return false;
  for (int d = 0; d + 1 < x.rank(); ++d) {
    if (x.stride_bytes(d) % bytes != 0) return false;
  }
  return dtype_bytes(x.dtype(), x.size(x.rank() - 1)) % bytes == 0;
}

}  // namespace tutti::cuda
