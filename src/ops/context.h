// Where a step computes: the device, the threads, and the memory for activations. One per rank; used by its worker
// thread only.
#pragma once

#include "base/thread_pool.h"
#include "tensor/arena.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace tutti {

struct KernelTable;
class CudaContext;

struct Context {
  Device device;
  ThreadPool* pool = nullptr;  // CPU kernels; nullptr: the calling thread alone
  Arena* arena = nullptr;      // activations and scratch of one step
  const KernelTable* kernels = nullptr;  // nullptr: the best for the device (ops/kernel_table.h)
  CudaContext* cuda = nullptr;           // GPU kernels: their stream and libraries (ops/cuda_context.h)
  DType activations = DType::kF32;       // of the residual stream; kBF16 or kF16 on a GPU
};

}  // namespace tutti
