#include "tensor/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "tensor/device_memory.h"

namespace tutti {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRegion = size_t{64} << 20;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Address space from a huge page's border on, which asks for huge pages. Memory comes with the first touch.
class Region {
 public:
  explicit Region(size_t bytes) : mapped_(round_up(bytes, kHugePage) + kHugePage) {
    raw_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw_ == MAP_FAILED) throw DeviceError("out of memory: cannot allocate " + std::to_string(bytes) + " bytes on the CPU");
    ::madvise(raw_, mapped_, MADV_HUGEPAGE);
    begin_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(raw_), kHugePage));
  }
  ~Region() { ::munmap(raw_, mapped_); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  std::byte* begin() const { return begin_; }

 private:
  size_t mapped_;
  void* raw_;
  std::byte* begin_;
};

// The huge pages that lie within [data, data + bytes) go back to the system.
void give_back(std::byte* data, size_t bytes) {
  const size_t begin = round_up(reinterpret_cast<uintptr_t>(data), kHugePage);
  const size_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / kHugePage * kHugePage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

struct Place {
  std::byte* data;
  std::shared_ptr<Region> region;
};

// Buffers that are not much larger than a huge page follow each other in regions: with pages of its own, each of a model's
// hundreds of weights would waste half of one.
Place place_of(size_t bytes) {
  if (bytes > kRegion / 2) {
    auto own = std::make_shared<Region>(bytes);
    return {own->begin(), own};
  }
  static std::mutex mutex;
  static std::weak_ptr<Region> shared;
  static size_t used = 0;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Region> region = shared.lock();
  if (region == nullptr || used + bytes > kRegion) {
    shared = region = std::make_shared<Region>(kRegion);
    used = 0;
  }
  std::byte* data = region->begin() + used;
  used += round_up(bytes, kAlignment);
  return {data, std::move(region)};
}

}  // namespace

std::shared_ptr<Buffer> Buffer::allocate(size_t bytes, Device device) {
  if (!device.is_cpu()) return cuda::allocate(bytes, device);
  if (bytes >= kHugePage) {
    const Place place = place_of(bytes);
    return std::shared_ptr<Buffer>(new Buffer(place.data, bytes, device, [place, bytes] { give_back(place.data, bytes); }));
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
