// A communicator of GPUs that takes CPU memory: copies it to the device, makes the call, waits and copies back. So the body
// of the conformance test runs on GPUs too.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "tensor/device_memory.h"

namespace tutti {

class StagedCommunicator final : public Communicator {
 public:
  // `shift`: bytes by which the device's memory is off its alignment, so that both paths of the kernels are seen.
  StagedCommunicator(Communicator& gpu, Device device, void* stream, size_t shift)
      : gpu_(gpu), device_(device), stream_(stream), shift_(shift) {}

  int rank() const override { return gpu_.rank(); }
  int size() const override { return gpu_.size(); }
  std::string_view transport() const override { return gpu_.transport(); }

  void all_reduce(void* data, int64_t count, DType dtype) override {
    const size_t bytes = dtype_bytes(dtype, count);
    std::byte* on_gpu = in(0, data, bytes);
    gpu_.all_reduce(on_gpu, count, dtype);
    out(data, on_gpu, bytes);
  }
  bool all_reduce_add_norm(const SumAddNorm&) override { return false; }
  const cuda_ipc::IpcGroup* sum_in_kernel(int64_t) override { return nullptr; }
  void all_gather(const void* send, void* recv, size_t bytes) override {
    const std::byte* from = in(0, send, bytes);
    std::byte* to = poisoned(1, all(bytes));
    gpu_.all_gather(from, to, bytes);
    out(recv, to, all(bytes));
  }
  void reduce_scatter(const void* send, void* recv, int64_t count, DType dtype) override {
    const size_t bytes = dtype_bytes(dtype, count);
    const std::byte* from = in(0, send, all(bytes));
    std::byte* to = poisoned(1, bytes);
    gpu_.reduce_scatter(from, to, count, dtype);
    out(recv, to, bytes);
  }
  void broadcast(void* data, size_t bytes, int root) override {
    std::byte* on_gpu = in(0, data, bytes);
    gpu_.broadcast(on_gpu, bytes, root);
    out(data, on_gpu, bytes);
  }
  void all_to_all(const void* send, void* recv, size_t bytes) override {
    const std::byte* from = in(0, send, all(bytes));
    std::byte* to = poisoned(1, all(bytes));
    gpu_.all_to_all(from, to, bytes);
    out(recv, to, all(bytes));
  }
  // Does not wait: the message lies unread.
  void send(const void* data, size_t bytes, int to) override { gpu_.send(in(2, data, bytes), bytes, to); }
  void recv(void* data, size_t bytes, int from) override {
    std::byte* to = poisoned(1, bytes);
    gpu_.recv(to, bytes, from);
    out(data, to, bytes);
  }
  void barrier() override { gpu_.barrier(); }
  void finish() override { gpu_.finish(); }
  void watch() override { gpu_.watch(); }
  void set_timeout(std::chrono::nanoseconds timeout) override { gpu_.set_timeout(timeout); }
  void abort(const std::string& reason) override { gpu_.abort(reason); }
  CommStats stats() const override { return gpu_.stats(); }

 private:
  size_t all(size_t bytes) const { return bytes * static_cast<size_t>(size()); }

  std::byte* room(int slot, size_t bytes) {
    auto& buffer = buffers_[slot];
    if (buffer == nullptr || buffer->bytes() < bytes + shift_) {
      gpu_.finish();
      buffer = cuda::allocate(std::max<size_t>(2 * bytes, 1 << 16) + shift_, device_);
    }
    return buffer->data() + shift_;
  }
  std::byte* in(int slot, const void* data, size_t bytes) {
    std::byte* to = room(slot, bytes);
    if (bytes > 0) cuda::copy_async(to, data, bytes, stream_);
    cuda::synchronize(stream_);
    return to;
  }
  std::byte* poisoned(int slot, size_t bytes) {
    const std::string poison(bytes, '\xee');
    return in(slot, poison.data(), bytes);
  }
  void out(void* to, const std::byte* from, size_t bytes) {
    gpu_.finish();
    if (bytes > 0) cuda::copy_async(to, from, bytes, stream_);
    cuda::synchronize(stream_);
  }

  Communicator& gpu_;
  const Device device_;
  void* const stream_;
  const size_t shift_;
  std::shared_ptr<Buffer> buffers_[3];
};

}  // namespace tutti
