#include "tensor/device_memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "base/error.h"

namespace tutti::cuda {
namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw DeviceError(std::string(what) + ": " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status));
}

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

std::shared_ptr<Buffer> allocate(size_t bytes, Device device) {
  check(cudaSetDevice(device.index), ("cannot use " + to_string(device)).c_str());
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, std::max<size_t>(bytes, 1));
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // not sticky: the caller may try a smaller size
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    throw DeviceError("out of memory: cannot allocate " + std::to_string(bytes) + " bytes on " + to_string(device) + ", " +
                      std::to_string(free) + " of " + std::to_string(total) + " are free");
  }
  check(status, "cudaMalloc");
  return Buffer::wrap(data, bytes, device, [data] { (void)cudaFree(data); });
}

std::shared_ptr<Buffer> allocate_pinned(size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, std::max<size_t>(bytes, 1));
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw DeviceError("out of memory: cannot pin " + std::to_string(bytes) + " bytes of CPU memory (see ulimit -l)");
  }
  check(status, "cudaMallocHost");
  return Buffer::wrap(data, bytes, Device::cpu(), [data] { (void)cudaFreeHost(data); });
}

void copy_async(void* to, const void* from, size_t bytes, void* stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, as_stream(stream)), "cudaMemcpyAsync");
}

void zero_async(void* data, size_t bytes, void* stream) {
  check(cudaMemsetAsync(data, 0, bytes, as_stream(stream)), "cudaMemsetAsync");
}

void synchronize(void* stream) { check(cudaStreamSynchronize(as_stream(stream)), "cudaStreamSynchronize"); }

}  // namespace tutti::cuda
