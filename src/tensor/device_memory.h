// Memory of GPUs: allocation, and copies to and from it. `stream` is a cudaStream_t; nullptr is the legacy stream. A
// build without CUDA has the same functions, and each throws ConfigError. Any thread.
#pragma once

#include <cstddef>
#include <memory>

#include "tensor/buffer.h"

namespace tutti::cuda {

// Plain device memory, as IPC wants it. Throws DeviceError with the size when the memory is not there.
std::shared_ptr<Buffer> allocate(size_t bytes, Device device);
// CPU memory that the GPU reads and writes without a staging copy; its device is the CPU.
std::shared_ptr<Buffer> allocate_pinned(size_t bytes);

// Either side may be on the CPU or on a GPU. Pageable CPU memory makes the call wait; pinned memory does not.
void copy_async(void* to, const void* from, size_t bytes, void* stream);
void zero_async(void* data, size_t bytes, void* stream);
void synchronize(void* stream);

}  // namespace tutti::cuda
