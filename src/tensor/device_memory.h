// Memory of GPUs: allocation, and copies to and from it. `stream` is a cudaStream_t; nullptr is the legacy stream. A
// build without CUDA has the same functions: no device is there, and everything else throws ConfigError. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tensor/buffer.h"
#include "tensor/tensor.h"

namespace tutti::cuda {

// GPUs that this process sees (CUDA_VISIBLE_DEVICES); 0 without a driver or without CUDA.
int device_count();
// Of the whole GPU, without opening it; 0 when it is not there.
int64_t total_memory(Device device);

// "PID 812 (python3) 40.21 GiB, ...": who else holds memory of this GPU; "" for nobody, or when NVML cannot be asked.
std::string other_processes(Device device);

struct DeviceMemory {
  size_t free = 0;
  size_t total = 0;
};
DeviceMemory device_memory(Device device);

// Plain device memory, as IPC wants it. Throws DeviceError when the memory is not there: with the size, what is free and
// who of this process holds how much.
std::shared_ptr<Buffer> allocate(size_t bytes, Device device);
// CPU memory that the GPU reads and writes without a staging copy; its device is the CPU.
std::shared_ptr<Buffer> allocate_pinned(size_t bytes);

// Device memory that this thread allocates while it lives is held by `name` in the ledger.
class Holder {
 public:
  explicit Holder(const char* name);
  ~Holder();
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

 private:
  [[maybe_unused]] const char* before_;  // not in a build without CUDA
};
// Bytes of device memory that this process holds under a name, and "weights 14.96 GiB, KV cache 100.20 GiB" of all.
int64_t held_bytes(const std::string& name);
std::string describe_holders();

// Either side may be on the CPU or on a GPU. Pageable CPU memory makes the call wait; pinned memory does not.
void copy_async(void* to, const void* from, size_t bytes, void* stream);
void zero_async(void* data, size_t bytes, void* stream);
void synchronize(void* stream);

// The tensor on `device`: itself on the CPU, else a copy. Waits.
Tensor to_device(const Tensor& host, Device device);

// A stream of its own, beside that of the kernels: copies that go on while they run.
class CopyStream {
 public:
  CopyStream();
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;
  void* get() const { return stream_; }

 private:
  void* stream_ = nullptr;
};

// A point in a stream's work.
class StreamEvent {
 public:
  // `timed`: microseconds_since() can be asked.
  explicit StreamEvent(bool timed = false);
  ~StreamEvent();
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  void record(void* stream);
  // Everything before the recorded point is complete. Throws DeviceError when it failed.
  bool done() const;
  void wait() const;
  // What is given to `stream` from now on waits for it on the device.
  void hold_back(void* stream) const;
  // Both timed and done, or `earlier` never recorded: then 0.
  float microseconds_since(const StreamEvent& earlier) const;

 private:
  [[maybe_unused]] bool recorded_ = false;
  [[maybe_unused]] void* event_ = nullptr;
};

}  // namespace tutti::cuda
