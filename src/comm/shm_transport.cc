#include "comm/shm_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/futex.h"
#include "comm/reduce.h"
#include "comm/slices.h"
#include "comm/stream_copy.h"

namespace tutti {
namespace {

constexpr size_t kSlotBytes = ShmSegment::kSlotBytes;
// Before measuring: below this every rank sums everything.
constexpr size_t kOneShotBytes = size_t{64} << 10;
constexpr std::chrono::milliseconds kMeasureTime{40};
// How long a sleeper waits before it looks whether everyone is alive.
constexpr std::chrono::nanoseconds kAliveCheck = std::chrono::milliseconds(20);

// From here on what others will read is written past the caches.
constexpr size_t kStreamBytes = size_t{16} << 10;

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

// Into a slot, for another rank.
void hand_over(void* to, const void* from, size_t bytes) {
  bytes < kStreamBytes ? copy_bytes(to, from, bytes) : stream_copy(to, from, bytes);
}

}  // namespace

ShmTransport::ShmTransport(CommGroup group, ShmLink link, std::string_view name)
    : group_(std::move(group)),
      link_(std::move(link)),
      segment_(link_.segment.get()),
      name_(name),
      table_(kOneShotBytes),
      parts_(static_cast<size_t>(group_.size)),
      sent_(static_cast<size_t>(group_.size)),
      received_(static_cast<size_t>(group_.size)) {
  CHECK_EQ(segment_->num_ranks(), group_.size);
  for (const Fd& lifeline : link_.lifelines) lifelines_.push_back({lifeline.get(), POLLIN, 0});
  if (!lifelines_.empty()) lifelines_[static_cast<size_t>(group_.rank)].fd = -1;
}

ShmTransport::~ShmTransport() {
  segment_->line(group_.rank).left.store(1, std::memory_order_release);
  segment_->wake_all();
}

void ShmTransport::measure(const Call& call) {
  std::vector<float> data(kSlotBytes / sizeof(float));
  SumTrial trial;
  trial.ways = {SumWay::kOneShot, SumWay::kOneShotStreamed, SumWay::kTwoShot};
  trial.run = [&](SumWay way, size_t bytes) {
    auto* begin = reinterpret_cast<std::byte*>(data.data());
    const auto count = static_cast<int64_t>(bytes / sizeof(float));
    sum(call, begin, count, DType::kF32, way);
  };
  trial.slowest = [&](double seconds) { return slowest_of(*this, call, group_.size, seconds); };
  measure_algorithms(table_, trial, kSlotBytes, kMeasureTime);
  log::debug(fmt::format("group {} over {}: {}", group_.name, name_, table_.text()));
}

uint32_t ShmTransport::begin_step(const Call& call) {
  const uint32_t step = ++step_;
  wait_all(call, step - 1);
  return step;
}

void ShmTransport::wait_all(const Call& call, uint32_t step) {
  for (int r = 0; r < group_.size; ++r) {
    if (r != group_.rank) wait_step(call, r, step);
  }
}

void ShmTransport::all_reduce(const Call& call, void* data, int64_t count, DType dtype) {
  auto* bytes = static_cast<std::byte*>(data);
  const auto element = dtype_bytes(dtype, 1);
  const auto per_step = static_cast<int64_t>(kSlotBytes / element);
  for (int64_t begin = 0; begin < count; begin += per_step) {
    const int64_t n = std::min(per_step, count - begin);
    std::byte* chunk = bytes + static_cast<size_t>(begin) * element;
    sum(call, chunk, n, dtype, table_.choose(static_cast<size_t>(n) * element));
  }
}

void ShmTransport::sum(const Call& call, std::byte* data, int64_t count, DType dtype, SumWay way) {
  if (way == SumWay::kTwoShot) return two_shot(call, data, count, dtype);
  one_shot(call, data, count, dtype, way == SumWay::kOneShotStreamed);
}

void ShmTransport::one_shot(const Call& call, std::byte* data, int64_t count, DType dtype,
                            bool streamed) {
  const uint32_t step = begin_step(call);
  (streamed ? stream_copy : copy_bytes)(segment_->slot(group_.rank, step), data,
                                        dtype_bytes(dtype, count));
  publish(step);
  for (int r = 0; r < group_.size; ++r) {
    if (r != group_.rank) wait_step(call, r, step);
    parts_[static_cast<size_t>(r)] = r == group_.rank ? data : segment_->slot(r, step);
  }
  sum_in_order(data, parts_.data(), group_.size, count, dtype);
}

void ShmTransport::two_shot(const Call& call, std::byte* data, int64_t count, DType dtype) {
  const auto offset = [&](const Slice& slice) { return dtype_bytes(dtype, slice.begin); };
  const Slice own = slice_of(count, group_.rank, group_.size);

  const uint32_t scatter = begin_step(call);
  std::byte* slot = segment_->slot(group_.rank, scatter);
  hand_over(slot, data, offset(own));
  const size_t own_end = dtype_bytes(dtype, own.begin + own.count);
  hand_over(slot + own_end, data + own_end, dtype_bytes(dtype, count) - own_end);
  publish(scatter);
  for (int r = 0; r < group_.size; ++r) {
    if (r != group_.rank) wait_step(call, r, scatter);
    parts_[static_cast<size_t>(r)] =
        (r == group_.rank ? data : segment_->slot(r, scatter)) + offset(own);
  }

  const uint32_t gather = begin_step(call);
  std::byte* own_data = data + offset(own);
  sum_in_order(own_data, parts_.data(), group_.size, own.count, dtype);
  hand_over(segment_->slot(group_.rank, gather), own_data, dtype_bytes(dtype, own.count));
  publish(gather);
  for (int r = 0; r < group_.size; ++r) {
    if (r == group_.rank) continue;
    wait_step(call, r, gather);
    const Slice theirs = slice_of(count, r, group_.size);
    copy_bytes(data + offset(theirs), segment_->slot(r, gather), dtype_bytes(dtype, theirs.count));
  }
}

void ShmTransport::all_gather(const Call& call, const void* send, void* recv, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(send);
  auto* to = static_cast<std::byte*>(recv);
  copy_bytes(to + static_cast<size_t>(group_.rank) * bytes, from, bytes);
  for (size_t begin = 0; begin < bytes; begin += kSlotBytes) {
    const size_t n = std::min(kSlotBytes, bytes - begin);
    const uint32_t step = begin_step(call);
    hand_over(segment_->slot(group_.rank, step), from + begin, n);
    publish(step);
    for (int r = 0; r < group_.size; ++r) {
      if (r == group_.rank) continue;
      wait_step(call, r, step);
      std::memcpy(to + static_cast<size_t>(r) * bytes + begin, segment_->slot(r, step), n);
    }
  }
}

void ShmTransport::reduce_scatter(const Call& call, const void* send, void* recv, int64_t count,
                                  DType dtype) {
  const auto* from = static_cast<const std::byte*>(send);
  auto* to = static_cast<std::byte*>(recv);
  const size_t element = dtype_bytes(dtype, 1);
  const size_t piece = static_cast<size_t>(count) * element;
  const auto ranks = static_cast<size_t>(group_.size);
  const auto own = static_cast<size_t>(group_.rank);
  // A step carries the same range of every rank's piece.
  const size_t range = kSlotBytes / ranks / (kSliceElements * element) * (kSliceElements * element);
  for (size_t begin = 0; begin < piece; begin += range) {
    const size_t n = std::min(range, piece - begin);
    const uint32_t step = begin_step(call);
    std::byte* slot = segment_->slot(group_.rank, step);
    for (size_t r = 0; r < ranks; ++r) {
      if (r != own) hand_over(slot + r * range, from + r * piece + begin, n);
    }
    publish(step);
    for (int r = 0; r < group_.size; ++r) {
      if (r != group_.rank) wait_step(call, r, step);
      parts_[static_cast<size_t>(r)] =
          r == group_.rank ? from + own * piece + begin : segment_->slot(r, step) + own * range;
    }
    sum_in_order(to + begin, parts_.data(), group_.size, static_cast<int64_t>(n / element), dtype);
  }
}

void ShmTransport::broadcast(const Call& call, void* data, size_t bytes, int root) {
  auto* to = static_cast<std::byte*>(data);
  for (size_t begin = 0; begin < bytes; begin += kSlotBytes) {
    const size_t n = std::min(kSlotBytes, bytes - begin);
    if (group_.rank == root) {
      const uint32_t step = begin_step(call);
      hand_over(segment_->slot(root, step), to + begin, n);
      publish(step);
    } else {
      // Nothing is written, so nothing has to be waited for but the root's part.
      const uint32_t step = ++step_;
      publish(step);
      wait_step(call, root, step);
      std::memcpy(to + begin, segment_->slot(root, step), n);
    }
  }
}

void ShmTransport::all_to_all(const Call& call, const void* send, void* recv, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(send);
  auto* to = static_cast<std::byte*>(recv);
  const auto own = static_cast<size_t>(group_.rank);
  const size_t range = kSlotBytes / static_cast<size_t>(group_.size) / 64 * 64;
  copy_bytes(to + own * bytes, from + own * bytes, bytes);
  for (size_t begin = 0; begin < bytes; begin += range) {
    const size_t n = std::min(range, bytes - begin);
    const uint32_t step = begin_step(call);
    std::byte* slot = segment_->slot(group_.rank, step);
    for (int r = 0; r < group_.size; ++r) {
      const auto peer = static_cast<size_t>(r);
      if (r != group_.rank) hand_over(slot + peer * range, from + peer * bytes + begin, n);
    }
    publish(step);
    for (int r = 0; r < group_.size; ++r) {
      if (r == group_.rank) continue;
      wait_step(call, r, step);
      std::memcpy(to + static_cast<size_t>(r) * bytes + begin,
                  segment_->slot(r, step) + own * range, n);
    }
  }
}

void ShmTransport::barrier(const Call& call) {
  const uint32_t step = ++step_;
  publish(step);
  wait_all(call, step);
}

void ShmTransport::send(const Call& call, const void* data, size_t bytes, int to) {
  const auto* from = static_cast<const std::byte*>(data);
  Channel& channel = segment_->channel(group_.rank, to);
  for (size_t begin = 0; begin < bytes; begin += ShmSegment::kChannelBytes) {
    const size_t n = std::min(ShmSegment::kChannelBytes, bytes - begin);
    const uint32_t chunk = ++sent_[static_cast<size_t>(to)];
    // Chunk k takes the place of the one that had its slot.
    const auto earlier = chunk - static_cast<uint32_t>(ShmSegment::kChannelChunks);
    if (!channel.taken.reached(earlier)) wait(call, to, channel.taken, earlier);
    hand_over(segment_->channel_slot(group_.rank, to, chunk), from + begin, n);
    channel.sent.publish(chunk);
  }
}

void ShmTransport::recv(const Call& call, void* data, size_t bytes, int from) {
  auto* to = static_cast<std::byte*>(data);
  Channel& channel = segment_->channel(from, group_.rank);
  for (size_t begin = 0; begin < bytes; begin += ShmSegment::kChannelBytes) {
    const size_t n = std::min(ShmSegment::kChannelBytes, bytes - begin);
    const uint32_t chunk = ++received_[static_cast<size_t>(from)];
    if (!channel.sent.reached(chunk)) wait(call, from, channel.sent, chunk);
    std::memcpy(to + begin, segment_->channel_slot(from, group_.rank, chunk), n);
    channel.taken.publish(chunk);
  }
}

void ShmTransport::abort(const std::string& reason, int peer) { segment_->fail(reason, peer); }

// ------------------------------------------------------------------------------------------
// waiting

void ShmTransport::wait(const Call& call, int peer, SharedCounter& counter, uint32_t target) {
  if (group_.spin.count() > 0) {
    const auto spin_end = Clock::now() + group_.spin;
    do {
      for (int i = 0; i < 64; ++i) {
        if (counter.reached(target)) return;
        cpu_pause();
      }
    } while (Clock::now() < spin_end);
  }
  sleep_until(call, peer, counter, target);
}

void ShmTransport::sleep_until(const Call& call, int peer, SharedCounter& counter,
                               uint32_t target) {
  segment_->set_waiting(group_.rank, call.number, peer, counter, target);
  for (;;) {
    counter.waiters.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = counter.value.load(std::memory_order_seq_cst);
    if (static_cast<int32_t>(seen - target) < 0 && !segment_->failed()) {
      futex_wait(counter.value, seen,
                 std::min<std::chrono::nanoseconds>(call.deadline.left(), kAliveCheck));
    }
    counter.waiters.fetch_sub(1, std::memory_order_relaxed);
    if (counter.reached(target)) break;
    check_group(call, peer, counter, target);
  }
  segment_->clear_waiting(group_.rank);
}

// Throws when the group cannot go on: another rank said so, one is gone, or the deadline has
// passed.
void ShmTransport::check_group(const Call& call, int peer, const SharedCounter& counter,
                               uint32_t target) {
  if (segment_->failed()) throw CommError(segment_->failure_text(), segment_->failure_peer());
  if (!lifelines_.empty() && ::poll(lifelines_.data(), lifelines_.size(), 0) > 0) {
    for (int r = 0; r < group_.size; ++r) {
      if ((lifelines_[static_cast<size_t>(r)].revents & (POLLHUP | POLLERR)) == 0) continue;
      if (segment_->line(r).left.load(std::memory_order_acquire) != 0) continue;
      throw CommError(
          fmt::format("{}: its process ended (killed or crashed) while {} waited in {} over {}",
                      group_.label(r), group_.label(group_.rank), describe(call), name_),
          r);
    }
  }
  // What a rank wrote before it left still counts.
  if (segment_->line(peer).left.load(std::memory_order_acquire) != 0 && !counter.reached(target)) {
    throw CommError(
        fmt::format("{}: left the group while {} waited for it in {} over {}", group_.label(peer),
                    group_.label(group_.rank), describe(call), name_),
        peer);
  }
  if (!call.deadline.passed() || counter.reached(target)) return;
  // A late rank may itself wait for another: the one at the end of the chain is at fault.
  int culprit = peer;
  for (int steps = 0; steps < group_.size; ++steps) {
    const int next = segment_->waits_for(culprit);
    if (next < 0 || next == group_.rank) break;
    culprit = next;
  }
  throw CommError(late_text(call, culprit), culprit);
}

std::string ShmTransport::late_text(const Call& call, int culprit) {
  const int64_t last = segment_->line(culprit).call.load(std::memory_order_relaxed);
  const std::string where =
      last > 0 ? fmt::format("it last waited in its call {}", last) : "it has not waited yet";
  return fmt::format(
      "{}: late, nothing from it for {:.1f} s in {} over {}; its process is there but stopped or "
      "busy ({})",
      group_.label(culprit), seconds_in(call), describe(call), name_, where);
}

}  // namespace tutti
