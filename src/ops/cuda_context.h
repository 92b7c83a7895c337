// What the kernels of one GPU need beside their tensors: a stream, cuBLASLt with its chosen algorithms, and a little
// scratch that outlives a step. One per rank, made and used by its worker thread. This header is free of CUDA's own; a
// build without CUDA has the same functions, and make_cuda_context() throws there.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tensor/device.h"
#include "tensor/dtype.h"

namespace tutti {

class CudaContext;

struct CudaOptions {
  // Every row's bits are the same alone and in any batch, whatever was computed before: one kernel with one order of
  // additions for all products, and one for attention. Hopper only.
  bool batch_invariant = false;
  // Activations are never rounded to FP8, as on GPUs without Hopper's FP8 products.
  bool fp8_weight_only = false;
  // Products take the fastest of their kernels. Otherwise each of them runs once, cuBLASLt's only where there is no other, and the first
  // is taken: for tools that check each kernel, under which hundreds of timed runs take hours.
  bool time_products = true;
  // Blocks ask for no more shared memory than so many bytes, as on a smaller GPU. 0: all that there is.
  size_t shared_memory = 0;
};

// `activations` is kBF16 or kF16: weights that are not FP8 are stored in this type. Throws ConfigError when this program
// was built without CUDA, a library is missing (named with its package) or the device lacks what an option wants,
// DeviceError when the device is not there.
std::shared_ptr<CudaContext> make_cuda_context(Device device, DType activations = DType::kBF16, CudaOptions options = {});

// The cudaStream_t on which all ops of a context run, in order.
void* cuda_stream(const CudaContext& cuda);

// Which kernels and algorithms are fastest for the products so far, as found by timing them. What they are good for, as a
// line: the GPU, cuBLASLt's version and that of the kernels here.
std::string kernel_choices_key(const CudaContext& cuda);
std::string kernel_choices(const CudaContext& cuda);
// Takes over another context's, which are ignored when they are not good for this one, or not legible. `all`: also where
// this context has made its own.
void take_kernel_choices(CudaContext& cuda, const std::string& text, bool all);

// All weights are packed: waits for those on their way and frees the pinned memory that they went through.
void end_upload(CudaContext& cuda);

}  // namespace tutti
