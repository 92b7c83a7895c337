// How the IPC kernels are launched.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "comm/cuda_ipc/ipc_layout.h"

namespace tutti::cuda_ipc {

constexpr int kThreads = 512;

// One block for each `bytes_per_block`, at least one and at most kMaxBlocks.
inline int blocks_for(size_t bytes, size_t bytes_per_block) {
  const size_t blocks = (bytes + bytes_per_block - 1) / bytes_per_block;
  return static_cast<int>(std::clamp<size_t>(blocks, 1, kMaxBlocks));
}

inline void check_launch(const char* what) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) throw DeviceError(std::string("cannot start ") + what + ": " + cudaGetErrorString(status));
}

}  // namespace tutti::cuda_ipc
