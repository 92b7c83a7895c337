// Stands in for tensor/cuda in a build without CUDA.
#include "tensor/device_memory.h"

#include "base/error.h"

namespace tutti::cuda {
namespace {

[[noreturn]] void refuse() {
  throw ConfigError("device cuda: this program was built without CUDA (configure with -DTUTTI_CUDA=ON, or use --device cpu)");
}

}  // namespace

int device_count() { return 0; }
int64_t total_memory(Device) { return 0; }
DeviceMemory device_memory(Device) { refuse(); }
std::shared_ptr<Buffer> allocate(size_t, Device) { refuse(); }
std::shared_ptr<Buffer> allocate_pinned(size_t) { refuse(); }
Holder::Holder(const char*) : before_(nullptr) {}
Holder::~Holder() = default;
std::string other_processes(Device) { return ""; }
int64_t held_bytes(const std::string&) { return 0; }
std::string describe_holders() { return ""; }
void copy_async(void*, const void*, size_t, void*) { refuse(); }
void zero_async(void*, size_t, void*) { refuse(); }
void synchronize(void*) { refuse(); }
CopyStream::CopyStream() { refuse(); }
CopyStream::~CopyStream() = default;
StreamEvent::StreamEvent(bool) { refuse(); }
StreamEvent::~StreamEvent() = default;
void StreamEvent::record(void*) { refuse(); }
bool StreamEvent::done() const { refuse(); }
void StreamEvent::wait() const { refuse(); }
void StreamEvent::hold_back(void*) const { refuse(); }
float StreamEvent::microseconds_since(const StreamEvent&) const { refuse(); }

Tensor to_device(const Tensor& host, Device device) {
  if (device.is_cpu()) return host;
  refuse();
}

}  // namespace tutti::cuda
