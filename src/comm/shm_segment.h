// The memory that the ranks of one host share: a line of counters for each rank, two slots for each
// rank's part of a collective, and a channel for each ordered pair of ranks. Processes share it as
// a memfd, threads as a plain map; it has no name and is gone with its last user. Pages that nobody
// touched cost nothing, so the slots may be large.
//
//   | failure | RankLine x n | Channel x n*n | slots n x 2 x 1 MiB | channel slots n*n x 16 x 256 KiB |
//
// Owners: rank r alone writes line(r).step and slot(r, .); of channel(a, b) rank a writes `sent`
// and the slots, rank b writes `taken`. `waiters` of a counter are written by those who sleep on
// it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.h"

namespace tutti {

// A counter that others wait on. Alone on two cache lines: the prefetcher fetches lines in pairs.
struct alignas(128) SharedCounter {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> waiters;

  // Makes everything written before visible to those who see the new value, and wakes who sleeps.
  void publish(uint32_t new_value);
  // Counters wrap around: `value` counts as reached when it is at most 2^31 steps ahead.
  bool reached(uint32_t target) const {
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - target) >= 0;
  }
};

struct RankLine {
  SharedCounter step;          // steps of collectives begun, see shm_transport.cc
  std::atomic<uint32_t> left;  // this rank has destroyed its communicator
  // What it sleeps on, for the errors of others: its call, the rank + 1 (0: it does not sleep), and
  // the counter, by its place in the segment, with the value that it waits for.
  std::atomic<int64_t> call;
  std::atomic<uint32_t> waits_for;
  std::atomic<uint32_t> wait_target;
  std::atomic<uint64_t> wait_offset;
};

struct Channel {
  SharedCounter sent;   // chunks written by the sender
  SharedCounter taken;  // chunks read by the receiver
};

// The first error of the group, for all others to repeat.
struct SharedFailure {
  enum State : uint32_t { kNone, kWriting, kSet };
  std::atomic<uint32_t> state;
  int32_t peer;
  char text[1000];
};

class ShmSegment {
 public:
  static constexpr size_t kSlotBytes = size_t{1} << 20;
  static constexpr size_t kChannelBytes = size_t{256} << 10;  // of a chunk
  // Messages that lie unread (communicator.h), each with what debug builds put before it.
  static constexpr size_t kChannelChunks = 16;

  // For processes; the descriptor is sealed against truncation, under which others would fault.
  static std::shared_ptr<ShmSegment> create(int num_ranks);
  static std::shared_ptr<ShmSegment> attach(Fd memfd, int num_ranks);
  // For the threads of this process.
  static std::shared_ptr<ShmSegment> create_private(int num_ranks);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  int fd() const { return memfd_.get(); }
  int num_ranks() const { return num_ranks_; }
  RankLine& line(int rank) { return lines_[rank]; }
  Channel& channel(int from, int to) { return channels_[from * num_ranks_ + to]; }
  std::byte* slot(int rank, uint32_t step) {
    return slots_ + (static_cast<size_t>(rank) * 2 + (step & 1)) * kSlotBytes;
  }
  std::byte* channel_slot(int from, int to, uint32_t chunk) {
    return channel_slots_ +
           (static_cast<size_t>(from * num_ranks_ + to) * kChannelChunks + chunk % kChannelChunks) * kChannelBytes;
  }

  void set_waiting(int rank, int64_t call, int peer, const SharedCounter& counter, uint32_t target);
  void clear_waiting(int rank) { line(rank).waits_for.store(0, std::memory_order_release); }
  // The rank that `rank` waits for in vain at this moment, or -1.
  int waits_for(int rank);

  // The first failure stays; wakes every sleeper.
  void fail(const std::string& text, int peer);
  bool failed() const {
    return failure_->state.load(std::memory_order_acquire) == SharedFailure::kSet;
  }
  std::string failure_text() const { return failure_->text; }
  int failure_peer() const { return failure_->peer; }
  void wake_all();

 private:
  ShmSegment(Fd memfd, void* base, size_t bytes, int num_ranks);
  static std::shared_ptr<ShmSegment> map(Fd memfd, int num_ranks);

  Fd memfd_;
  void* base_;
  size_t bytes_;
  int num_ranks_;
  SharedFailure* failure_;
  RankLine* lines_;
  Channel* channels_;
  std::byte* slots_;
  std::byte* channel_slots_;
};

}  // namespace tutti
