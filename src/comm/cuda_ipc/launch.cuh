// How the IPC kernels are launched.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "tensor/cuda/ipc_memory.h"

namespace tutti::cuda_ipc {

constexpr int kThreads = 512;

// One block for each `bytes_per_block`, at least one and at most kMaxBlocks.
inline int blocks_for(size_t bytes, size_t bytes_per_block) {
  const size_t blocks = (bytes + bytes_per_block - 1) / bytes_per_block;
  return static_cast<int>(std::clamp<size_t>(blocks, 1, kMaxBlocks));
}

// Every kernel calls begin() of ipc_device.cuh first.
template <typename... Params, typename... Args>
void launch(const char* what, const IpcGroup& group, void (*kernel)(const IpcGroup, Params...), int blocks, int threads,
            cudaStream_t stream, Args... args) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = group.lets_next_start ? 1 : 0;
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, group, static_cast<Params>(args)...);
  if (status != cudaSuccess) throw DeviceError(std::string("cannot start ") + what + ": " + cudaGetErrorString(status));
}

}  // namespace tutti::cuda_ipc
