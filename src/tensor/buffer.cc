#include "tensor/buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

#include "base/check.h"
#include "base/error.h"
#include "tensor/device_memory.h"

namespace tutti {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

std::byte* map_huge(size_t bytes) {
  // Over-allocate, so that the start can be moved to a huge-page border; the tail is never touched.
  void* raw = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  ::madvise(raw, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(raw);
}

}  // namespace

std::shared_ptr<Buffer> Buffer::allocate(size_t bytes, Device device) {
  if (!device.is_cpu()) return cuda::allocate(bytes, device);
  if (bytes >= kHugePage) {
    const size_t mapped = round_up(bytes, kHugePage) + kHugePage;
    std::byte* raw = map_huge(mapped);
    if (raw == nullptr) throw DeviceError("out of memory: cannot allocate " + std::to_string(bytes) + " bytes on the CPU");
    auto* data = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(raw), kHugePage));
    return std::shared_ptr<Buffer>(new Buffer(data, bytes, device, [raw, mapped] { ::munmap(raw, mapped); }));
  }
  const size_t size = round_up(std::max<size_t>(bytes, 1), kAlignment);
  void* data = std::aligned_alloc(kAlignment, size);
  if (data == nullptr) throw DeviceError("out of memory: cannot allocate " + std::to_string(bytes) + " bytes on the CPU");
  return std::shared_ptr<Buffer>(new Buffer(static_cast<std::byte*>(data), bytes, device, [data] { std::free(data); }));
}

std::shared_ptr<Buffer> Buffer::wrap(void* data, size_t bytes, Device device, std::function<void()> release) {
  return std::shared_ptr<Buffer>(new Buffer(static_cast<std::byte*>(data), bytes, device, std::move(release)));
}

Buffer::~Buffer() {
  if (release_) release_();
}

}  // namespace tutti
