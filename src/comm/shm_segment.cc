#include "comm/shm_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "comm/futex.h"

namespace tutti {
namespace {

constexpr size_t kPage = 4096;
size_t page_aligned(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Where each part of the segment begins.
struct Layout {
  size_t lines, channels, slots, channel_slots, total;

  explicit Layout(int num_ranks) {
    const auto n = static_cast<size_t>(num_ranks);
    lines = page_aligned(sizeof(SharedFailure));
    channels = lines + n * sizeof(RankLine);
    slots = page_aligned(channels + n * n * sizeof(Channel));
    channel_slots = slots + n * 2 * ShmSegment::kSlotBytes;
    total = channel_slots + n * n * ShmSegment::kChannelChunks * ShmSegment::kChannelBytes;
  }
};

[[noreturn]] void throw_errno(const char* what, size_t bytes) {
  throw CommError(fmt::format("shared memory of {} bytes between the ranks of this host: {}: {}",
                              bytes, what, std::strerror(errno)));
}

}  // namespace

void SharedCounter::publish(uint32_t new_value) {
  // Sequentially consistent on both sides: either this thread sees the sleeper, or the sleeper sees
  // the new value.
  value.store(new_value, std::memory_order_seq_cst);
  if (waiters.load(std::memory_order_seq_cst) != 0) futex_wake_all(value);
}

ShmSegment::ShmSegment(Fd memfd, void* base, size_t bytes, int num_ranks)
    : memfd_(std::move(memfd)), base_(base), bytes_(bytes), num_ranks_(num_ranks) {
  // Fresh pages are zero, and zero is the first state of everything here.
  const Layout layout(num_ranks);
  auto* bytes_of = static_cast<std::byte*>(base);
  failure_ = reinterpret_cast<SharedFailure*>(bytes_of);
  lines_ = reinterpret_cast<RankLine*>(bytes_of + layout.lines);
  channels_ = reinterpret_cast<Channel*>(bytes_of + layout.channels);
  slots_ = bytes_of + layout.slots;
  channel_slots_ = bytes_of + layout.channel_slots;
}

ShmSegment::~ShmSegment() { ::munmap(base_, bytes_); }

std::shared_ptr<ShmSegment> ShmSegment::map(Fd memfd, int num_ranks) {
  const size_t bytes = Layout(num_ranks).total;
  const int flags = memfd ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS;
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, memfd.get(), 0);
  if (base == MAP_FAILED) throw_errno("mmap", bytes);
  return std::shared_ptr<ShmSegment>(new ShmSegment(std::move(memfd), base, bytes, num_ranks));
}

std::shared_ptr<ShmSegment> ShmSegment::create(int num_ranks) {
  const size_t bytes = Layout(num_ranks).total;
  Fd memfd(::memfd_create("tutti-comm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd) throw_errno("memfd_create", bytes);
  if (::ftruncate(memfd.get(), static_cast<off_t>(bytes)) != 0) throw_errno("ftruncate", bytes);
  if (::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw_errno("seal", bytes);
  return map(std::move(memfd), num_ranks);
}

std::shared_ptr<ShmSegment> ShmSegment::attach(Fd memfd, int num_ranks) {
  const size_t bytes = Layout(num_ranks).total;
  struct stat info {};
  if (::fstat(memfd.get(), &info) != 0) throw_errno("fstat", bytes);
  if (static_cast<size_t>(info.st_size) != bytes) {
    throw CommError(fmt::format(
        "shared memory between the ranks of this host has {} bytes, expected {} for {} ranks: "
        "the ranks do not run the same build or disagree on the group's size",
        info.st_size, bytes, num_ranks));
  }
  return map(std::move(memfd), num_ranks);
}

std::shared_ptr<ShmSegment> ShmSegment::create_private(int num_ranks) {
  return map(Fd(), num_ranks);
}

void ShmSegment::set_waiting(int rank, int64_t call, int peer, const SharedCounter& counter,
                             uint32_t target) {
  RankLine& own = line(rank);
  own.call.store(call, std::memory_order_relaxed);
  own.wait_target.store(target, std::memory_order_relaxed);
  own.wait_offset.store(static_cast<uint64_t>(reinterpret_cast<const std::byte*>(&counter) -
                                              static_cast<const std::byte*>(base_)),
                        std::memory_order_relaxed);
  own.waits_for.store(static_cast<uint32_t>(peer) + 1, std::memory_order_release);
}

int ShmSegment::waits_for(int rank) {
  const RankLine& other = line(rank);
  const uint32_t peer = other.waits_for.load(std::memory_order_acquire);
  const uint64_t offset = other.wait_offset.load(std::memory_order_relaxed);
  if (peer == 0 || peer > static_cast<uint32_t>(num_ranks_) ||
      offset + sizeof(SharedCounter) > bytes_)
    return -1;
  const auto* counter =
      reinterpret_cast<const SharedCounter*>(static_cast<const std::byte*>(base_) + offset);
  return counter->reached(other.wait_target.load(std::memory_order_relaxed))
             ? -1
             : static_cast<int>(peer) - 1;
}

void ShmSegment::fail(const std::string& text, int peer) {
  uint32_t expected = SharedFailure::kNone;
  if (failure_->state.compare_exchange_strong(expected, SharedFailure::kWriting)) {
    const size_t length = std::min(text.size(), sizeof failure_->text - 1);
    std::memcpy(failure_->text, text.data(), length);
    failure_->text[length] = '\0';
    failure_->peer = peer;
    failure_->state.store(SharedFailure::kSet, std::memory_order_release);
  }
  wake_all();
}

void ShmSegment::wake_all() {
  for (int r = 0; r < num_ranks_; ++r) futex_wake_all(line(r).step.value);
  for (int i = 0; i < num_ranks_ * num_ranks_; ++i) {
    futex_wake_all(channels_[i].sent.value);
    futex_wake_all(channels_[i].taken.value);
  }
}

}  // namespace tutti
