#include "tensor/device_memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "base/error.h"
#include "tensor/nvml.h"

namespace tutti::cuda {
namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw DeviceError(std::string(what) + ": " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status));
}

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

// Who holds how much of this process's device memory. Buffers outlive main() at times, so it is never destroyed.
struct Ledger {
  std::mutex mutex;
  std::map<std::string, int64_t> held;

  static Ledger& get() {
    static auto* ledger = new Ledger;
    return *ledger;
  }
  void add(const char* name, int64_t bytes) {
    const std::lock_guard lock(mutex);
    held[name] += bytes;
  }
};

thread_local const char* holder = "other";

std::string gib(size_t bytes) {
  const auto hundredths = static_cast<long long>(static_cast<double>(bytes) / (1 << 30) * 100 + 0.5);
  return std::to_string(hundredths / 100) + "." + std::to_string(hundredths % 100 / 10) + std::to_string(hundredths % 10) + " GiB";
}

}  // namespace

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

int64_t total_memory(Device device) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device.index) == cudaSuccess) return static_cast<int64_t>(properties.totalGlobalMem);
  (void)cudaGetLastError();
  return 0;
}

std::string other_processes(Device device) {
  char address[32] = "";
  if (cudaDeviceGetPCIBusId(address, sizeof address, device.index) == cudaSuccess) return nvml::other_processes(nvml::library(), address);
  (void)cudaGetLastError();
  return "";
}

DeviceMemory device_memory(Device device) {
  check(cudaSetDevice(device.index), ("cannot use " + to_string(device)).c_str());
  DeviceMemory memory;
  check(cudaMemGetInfo(&memory.free, &memory.total), "cudaMemGetInfo");
  return memory;
}

std::shared_ptr<Buffer> allocate(size_t bytes, Device device) {
  check(cudaSetDevice(device.index), ("cannot use " + to_string(device)).c_str());
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, std::max<size_t>(bytes, 1));
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // not sticky: the caller may try a smaller size
    const DeviceMemory memory = device_memory(device);
    const std::string held = describe_holders();
    const std::string others = other_processes(device);
    throw DeviceError("out of memory: cannot allocate " + gib(bytes) + " for " + holder + " on " + to_string(device) + ", " +
                      gib(memory.free) + " of " + gib(memory.total) + " are free; this rank holds " + (held.empty() ? "nothing" : held) +
                      (others.empty() ? "" : "; others: " + others) + ": lower --gpu-memory-utilization, --max-num-batched-tokens or --max-model-len, or use more GPUs");
  }
  check(status, "cudaMalloc");
  const char* name = holder;
  const auto size = static_cast<int64_t>(bytes);
  Ledger::get().add(name, size);
  return Buffer::wrap(data, bytes, device, [data, name, size] {
    (void)cudaFree(data);
    Ledger::get().add(name, -size);
  });
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

Holder::Holder(const char* name) : before_(holder) { holder = name; }
Holder::~Holder() { holder = before_; }

int64_t held_bytes(const std::string& name) {
  Ledger& ledger = Ledger::get();
  const std::lock_guard lock(ledger.mutex);
  const auto found = ledger.held.find(name);
  return found == ledger.held.end() ? 0 : found->second;
}

std::string describe_holders() {
  Ledger& ledger = Ledger::get();
  const std::lock_guard lock(ledger.mutex);
  std::string text;
  for (const auto& [name, bytes] : ledger.held) {
    if (bytes <= 0) continue;
    text += (text.empty() ? "" : ", ") + name + " " + gib(static_cast<size_t>(bytes));
  }
  return text;
}

void copy_async(void* to, const void* from, size_t bytes, void* stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, as_stream(stream)), "cudaMemcpyAsync");
}

void zero_async(void* data, size_t bytes, void* stream) {
  check(cudaMemsetAsync(data, 0, bytes, as_stream(stream)), "cudaMemsetAsync");
}

void synchronize(void* stream) { check(cudaStreamSynchronize(as_stream(stream)), "cudaStreamSynchronize"); }

Tensor to_device(const Tensor& host, Device device) {
  if (device.is_cpu()) return host;
  CHECK(host.is_contiguous());
  const auto buffer = allocate(host.bytes(), device);
  check(cudaMemcpy(buffer->data(), host.data(), host.bytes(), cudaMemcpyDefault), "cudaMemcpy");
  synchronize(nullptr);  // pageable memory may still be on its way, and other streams do not wait for this one
  const auto size = [&](int d) { return host.size(d); };
  switch (host.rank()) {
    case 1: return Tensor::view(buffer->data(), {size(0)}, host.dtype(), device, buffer);
    case 2: return Tensor::view(buffer->data(), {size(0), size(1)}, host.dtype(), device, buffer);
    case 3: return Tensor::view(buffer->data(), {size(0), size(1), size(2)}, host.dtype(), device, buffer);
    default: return Tensor::view(buffer->data(), {size(0), size(1), size(2), size(3)}, host.dtype(), device, buffer);
  }
}

CopyStream::CopyStream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  stream_ = stream;
}

CopyStream::~CopyStream() { (void)cudaStreamDestroy(as_stream(stream_)); }

StreamEvent::StreamEvent(bool timed) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming), "cudaEventCreateWithFlags");
  event_ = event;
}

StreamEvent::~StreamEvent() { (void)cudaEventDestroy(static_cast<cudaEvent_t>(event_)); }

void StreamEvent::record(void* stream) {
  check(cudaEventRecord(static_cast<cudaEvent_t>(event_), as_stream(stream)), "cudaEventRecord");
  recorded_ = true;
}

bool StreamEvent::done() const {
  const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event_));
  if (status == cudaErrorNotReady) return false;
  check(status, "a step on the GPU");
  return true;
}

void StreamEvent::wait() const { check(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)), "a step on the GPU"); }

void StreamEvent::hold_back(void* stream) const {
  check(cudaStreamWaitEvent(as_stream(stream), static_cast<cudaEvent_t>(event_), 0), "cudaStreamWaitEvent");
}

float StreamEvent::microseconds_since(const StreamEvent& earlier) const {
  if (!earlier.recorded_) return 0;
  float ms = 0;
  check(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(earlier.event_), static_cast<cudaEvent_t>(event_)), "cudaEventElapsedTime");
  return 1e3f * ms;
}

}  // namespace tutti::cuda
