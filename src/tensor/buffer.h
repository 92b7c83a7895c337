// The only owner of raw tensor memory. A Buffer is created once and never grows; tensors are views that keep it alive.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "tensor/device.h"

namespace tutti {

class Buffer {
 public:
  // 64-byte aligned; large CPU buffers ask for huge pages. The contents are undefined. Throws DeviceError with the
  // size when the memory is not there.
  static std::shared_ptr<Buffer> allocate(size_t bytes, Device device);
  // Memory that somebody else owns (a mapped file, a shared-memory segment): `release` runs with the last owner.
  static std::shared_ptr<Buffer> wrap(void* data, size_t bytes, Device device, std::function<void()> release);

  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  Buffer(std::byte* data, size_t bytes, Device device, std::function<void()> release)
      : data_(data), bytes_(bytes), device_(device), release_(std::move(release)) {}

  std::byte* data_;
  size_t bytes_;
  Device device_;
  std::function<void()> release_;
};

}  // namespace tutti
