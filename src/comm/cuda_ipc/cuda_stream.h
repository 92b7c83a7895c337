// The real DeviceStream: a cudaStream_t that somebody else owns.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <mutex>
#include <string>

#include "comm/device_stream.h"
#include "tensor/device.h"

namespace tutti::cuda_ipc {

// Throws DeviceError: "cudaMalloc: cudaErrorMemoryAllocation: out of memory".
void check(cudaError_t status, const char* what);

class CudaStream final : public DeviceStream {
 public:
  CudaStream(Device device, void* stream);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void* handle() const override { return stream_; }
  bool capturing() const override;
  uint64_t mark() override;
  bool reached(uint64_t mark) override;
  void copy(void* to, const void* from, size_t bytes) override;

  cudaStream_t stream() const { return stream_; }
  Device device() const { return device_; }

 private:
  static constexpr uint64_t kEvents = 64;

  const Device device_;
  const cudaStream_t stream_;
  std::mutex mutex_;
  std::array<cudaEvent_t, kEvents> events_{};  // mark n is events_[n % kEvents]
  uint64_t last_ = 0;                          // mark
};

}  // namespace tutti::cuda_ipc
