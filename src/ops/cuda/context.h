// The inside of CudaContext, and how host code launches kernels. Worker thread only.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <string>

#include "base/error.h"
#include "ops/context.h"
#include "ops/cuda_context.h"
#include "tensor/tensor.h"

namespace tutti {

namespace cuda {
class CublasLt;
class ProductChoice;
class Upload;
}

class CudaContext {
 public:
  CudaContext(Device device, DType activations, CudaOptions options);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  cudaStream_t stream() const { return stream_; }
  const std::string& name() const { return name_; }
  int num_sms() const { return num_sms_; }
  int capability() const { return capability_; }  // 90 for 9.0
  size_t shared_memory() const { return shared_memory_; }  // that one block may ask for
  DType activations() const { return activations_; }
  bool batch_invariant() const { return options_.batch_invariant; }
  // Do products of more than a few tokens with FP8 weights want FP8 tokens?
  bool fp8_tokens() const { return capability_ == 90 && !options_.fp8_weight_only; }
  cuda::CublasLt& cublas_lt() const { return *cublas_lt_; }
  cuda::ProductChoice& product_choice() const { return *product_choice_; }
  cuda::Upload& upload();  // made when first needed
  void end_upload();

  // Arrival counters that are zero between kernels: the block that arrives last sets its counter back.
  static constexpr int kCounters = 1 << 16;
  unsigned* counters() const { return counters_.data_as<unsigned>(); }

  // By the number of their blocks; 0: not known yet (linear_tile.cu).
  std::array<int, 9>& clusters_at_once() const { return clusters_at_once_; }

  // Tile descriptors for the bulk copy engine, bytes with 128-byte swizzle. Of `rows` rows cut into boxes of [box_rows, 128];
  // and of `groups` of `rows` rows each, one behind the other, cut into boxes of [box_groups, box_rows, 128].
  CUtensorMap tensor_map(const void* data, int64_t rows, int64_t columns, int64_t row_bytes, int box_rows) const;
  CUtensorMap tensor_map(const void* data, int64_t groups, int64_t rows, int64_t row_bytes, int box_groups, int box_rows) const;

 private:
  cudaStream_t stream_ = nullptr;
  std::string name_;
  int num_sms_ = 0;
  int capability_ = 0;
  size_t shared_memory_ = 0;
  DType activations_;
  CudaOptions options_;
  Tensor counters_;
  mutable std::array<int, 9> clusters_at_once_{};
  std::unique_ptr<cuda::ProductChoice> product_choice_;
  std::unique_ptr<cuda::CublasLt> cublas_lt_;
  std::unique_ptr<cuda::Upload> upload_;
  decltype(&cuTensorMapEncodeTiled) encode_tiled_ = nullptr;
};

namespace cuda {

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw DeviceError(std::string(what) + ": " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status));
}

// How a kernel is placed.
struct Placement {
  unsigned cluster = 1;     // so many blocks along x see each other's shared memory; 1 before compute capability 9.0
  int shared_percent = -1;  // shared memory's part of what it shares with the L1; -1: as the driver likes
};

// Launches on the context's stream. From compute capability 9.0 on the kernel may start while the one before it ends
// (programmatic dependent launch), so every kernel calls wait_for_previous() before it touches what others write.
template <typename... Params, typename... Args>
void launch_placed(const Context& ctx, Placement placement, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, Args... args) {
  if (shared_bytes > 48 * 1024) {
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          "cudaFuncSetAttribute");
  }
  cudaLaunchAttribute attributes[3] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  unsigned count = 1;
  if (placement.shared_percent >= 0) {
    attributes[count].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attributes[count++].val.sharedMemCarveout = static_cast<unsigned>(placement.shared_percent);
  }
  if (placement.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {placement.cluster, 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = ctx.cuda->stream();
  config.attrs = attributes;
  config.numAttrs = ctx.cuda->capability() < 90 ? 0 : count;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), "kernel launch");
}

template <typename... Params, typename... Args>
void launch(const Context& ctx, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, Args... args) {
  launch_placed(ctx, Placement{}, kernel, grid, block, shared_bytes, args...);
}

// Scratch of one op: given back to the arena at its end. Kernels run in stream order, so the next op may have it.
class Scratch {
 public:
  explicit Scratch(const Context& ctx) : arena_(*ctx.arena), mark_(arena_.mark()) {}
  ~Scratch() { arena_.rewind(mark_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  float* floats(int64_t count) const { return arena_.allocate({count}, DType::kF32).data_as<float>(); }
  Tensor tensor(std::initializer_list<int64_t> shape, DType dtype) const { return arena_.allocate(shape, dtype); }

 private:
  Arena& arena_;
  size_t mark_;
};

}  // namespace cuda
}  // namespace tutti
