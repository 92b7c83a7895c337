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
constexpr size_t kMostWaste = size_t{512} << 10;  // of a buffer's last huge page: one with less in it is no huge page

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// A model has hundreds of weights: what each of them wastes in its last page adds up.
void advise_huge(std::byte* data, size_t bytes, size_t mapped) {
  const size_t whole = (bytes + kMostWaste) / kHugePage * kHugePage;
  ::madvise(data, whole, MADV_HUGEPAGE);
  if (whole < mapped) ::madvise(data + whole, mapped - whole, MADV_NOHUGEPAGE);  // where huge pages are the rule
}

}  // namespace

std::shared_ptr<Buffer> Buffer::allocate(size_t bytes, Device device) {
  if (!device.is_cpu()) return cuda::allocate(bytes, device);
  if (bytes >= kHugePage) {
    // Over-allocate, so that the start can be moved to a huge-page border; the tail is never touched.
    const size_t mapped = round_up(bytes, kHugePage) + kHugePage;
    void* raw = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) throw DeviceError("out of memory: cannot allocate " + std::to_string(bytes) + " bytes on the CPU");
    auto* data = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(raw), kHugePage));
    advise_huge(data, bytes, mapped - static_cast<size_t>(data - static_cast<std::byte*>(raw)));
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
