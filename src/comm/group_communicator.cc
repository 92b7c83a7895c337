#include "comm/group_communicator.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "comm/reduce.h"

namespace tutti {
namespace {

enum class Kind : uint32_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kAllToAll,
  kSend,
  kRecv,
  kBarrier,
  kCount,
};

constexpr std::array<std::string_view, static_cast<size_t>(Kind::kCount)> kNames = {
    "all-reduce", "all-gather", "reduce-scatter", "broadcast",
    "all-to-all", "send",       "recv",           "barrier"};

bool is_point_to_point(Kind kind) { return kind == Kind::kSend || kind == Kind::kRecv; }

}  // namespace

// Travels between ranks as it is when the sequence is checked: all ranks run the same build.
struct GroupCommunicator::Step {
  Kind kind;
  DType dtype;  // U8 where the caller counts bytes
  int64_t count;
  int32_t root;  // of a broadcast, -1 otherwise
  int64_t number = 0;

  std::string_view name() const {
    const auto index = static_cast<size_t>(kind);
    return index < kNames.size() ? kNames[index] : "an unknown call";
  }
  std::string text() const {
    std::string what = fmt::format("{} {} of {}", name(), number, count);
    what += dtype == DType::kU8 ? " bytes" : fmt::format(" {}", dtype_name(dtype));
    return root >= 0 ? what + fmt::format(" from rank {}", root) : what;
  }
};

std::string describe(const Call& call) { return fmt::format("{} {}", call.name, call.number); }

double seconds_in(const Call& call) {
  return std::chrono::duration<double>(Clock::now() - call.start).count();
}

GroupCommunicator::GroupCommunicator(CommGroup group, std::unique_ptr<Transport> transport,
                                     Options options, std::shared_ptr<void> base)
    : group_(std::move(group)),
      base_(std::move(base)),
      transport_(std::move(transport)),
      options_(options) {
  CHECK(transport_ != nullptr);
  CHECK_EQ(group_.labels.size(), static_cast<size_t>(group_.size));
}

template <typename Body>
void GroupCommunicator::run(const Step& step, const Body& body) {
  if (broken_.load(std::memory_order_acquire)) throw_broken();
  const auto start = Clock::now();
  const Call call{step.name(), number_++, start, Deadline(start + options_.timeout)};
  try {
    if (options_.check_sequence && !is_point_to_point(step.kind)) compare_with_others(call, step);
    body(call);
  } catch (const CommError& error) {
    break_for_good(error.what(), error.peer());
    throw_broken();
  }
  calls_.fetch_add(1, std::memory_order_relaxed);
  // Nothing moves in a group of one.
  const int64_t bytes = group_.size > 1 ? static_cast<int64_t>(dtype_bytes(step.dtype, step.count)) : 0;
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  nanoseconds_.fetch_add((Clock::now() - start).count(), std::memory_order_relaxed);
}

void GroupCommunicator::all_reduce(void* data, int64_t count, DType dtype) {
  CHECK(can_reduce(dtype));
  run({Kind::kAllReduce, dtype, count, -1},
      [&](const Call& call) { transport_->all_reduce(call, data, count, dtype); });
}

bool GroupCommunicator::all_reduce_add_norm(const SumAddNorm& what) {
  FusedSums* fused = transport_->fused_sums();
  if (fused == nullptr || !fused->takes(what)) return false;
  run({Kind::kAllReduce, what.dtype, what.rows * what.columns, -1},
      [&](const Call& call) { fused->all_reduce_add_norm(call, what); });
  return true;
}

const cuda_ipc::IpcGroup* GroupCommunicator::sum_in_kernel(int64_t count) {
  FusedSums* fused = transport_->fused_sums();
  if (fused == nullptr || !fused->sums_in_kernels(count)) return nullptr;
  const cuda_ipc::IpcGroup* group = nullptr;
  run({Kind::kAllReduce, DType::kF32, count, -1}, [&](const Call& call) { group = &fused->sum_in_kernel(call); });
  return group;
}

void GroupCommunicator::all_gather(const void* send, void* recv, size_t bytes) {
  run({Kind::kAllGather, DType::kU8, static_cast<int64_t>(bytes), -1},
      [&](const Call& call) { transport_->all_gather(call, send, recv, bytes); });
}

void GroupCommunicator::reduce_scatter(const void* send, void* recv, int64_t count, DType dtype) {
  CHECK(can_reduce(dtype));
  run({Kind::kReduceScatter, dtype, count, -1},
      [&](const Call& call) { transport_->reduce_scatter(call, send, recv, count, dtype); });
}

void GroupCommunicator::broadcast(void* data, size_t bytes, int root) {
  CHECK(root >= 0 && root < group_.size);
  run({Kind::kBroadcast, DType::kU8, static_cast<int64_t>(bytes), root},
      [&](const Call& call) { transport_->broadcast(call, data, bytes, root); });
}

void GroupCommunicator::all_to_all(const void* send, void* recv, size_t bytes) {
  run({Kind::kAllToAll, DType::kU8, static_cast<int64_t>(bytes), -1},
      [&](const Call& call) { transport_->all_to_all(call, send, recv, bytes); });
}

void GroupCommunicator::send(const void* data, size_t bytes, int to) {
  CHECK(to >= 0 && to < group_.size && to != group_.rank);
  Step step{Kind::kSend, DType::kU8, static_cast<int64_t>(bytes), -1};
  run(step, [&](const Call& call) {
    step.number = call.number;
    if (options_.check_sequence) transport_->send(call, &step, sizeof step, to);
    transport_->send(call, data, bytes, to);
  });
}

void GroupCommunicator::recv(void* data, size_t bytes, int from) {
  CHECK(from >= 0 && from < group_.size && from != group_.rank);
  const Step step{Kind::kRecv, DType::kU8, static_cast<int64_t>(bytes), -1};
  run(step, [&](const Call& call) {
    if (options_.check_sequence) compare_with_peer(call, step, from);
    transport_->recv(call, data, bytes, from);
  });
}

void GroupCommunicator::barrier() {
  run({Kind::kBarrier, DType::kU8, 0, -1}, [&](const Call& call) { transport_->barrier(call); });
}

// Neither a call nor time spent in one: on a GPU this waits for whatever the stream computes.
template <typename Wait>
void GroupCommunicator::wait(const Wait& wait) {
  if (broken_.load(std::memory_order_acquire)) throw_broken();
  const auto start = Clock::now();
  try {
    wait(Call{"call", number_ - 1, start, Deadline(start + options_.timeout)});
  } catch (const CommError& error) {
    break_for_good(error.what(), error.peer());
    throw_broken();
  }
}

void GroupCommunicator::finish() {
  wait([&](const Call& call) { transport_->finish(call); });
}

void GroupCommunicator::watch() {
  wait([&](const Call& call) { transport_->watch(call); });
}

// Every call is compared, so the first difference is found at the call that differs, before it can
// wait for ever.
void GroupCommunicator::compare_with_others(const Call& call, const Step& step) {
  Step mine = step;
  mine.number = call.number;
  std::vector<Step> all(static_cast<size_t>(group_.size), mine);
  transport_->all_gather(call, &mine, all.data(), sizeof mine);
  for (int r = 0; r < group_.size; ++r) require_same(call, mine, all[static_cast<size_t>(r)], r);
}

void GroupCommunicator::compare_with_peer(const Call& call, const Step& step, int peer) {
  Step theirs{};
  transport_->recv(call, &theirs, sizeof theirs, peer);
  if (theirs.kind == Kind::kSend) theirs.kind = Kind::kRecv;
  Step mine = step;
  mine.number = theirs.number;
  require_same(call, mine, theirs, peer);
}

// The numbers may differ: a send counts on two ranks only.
void GroupCommunicator::require_same(const Call& call, const Step& mine, const Step& theirs,
                                     int peer) {
  if (mine.kind == theirs.kind && mine.dtype == theirs.dtype && mine.count == theirs.count &&
      mine.root == theirs.root) {
    return;
  }
  throw CommError(
      fmt::format(
          "the ranks disagree in {}: {} calls {}, {} calls {}. All ranks of a group must make the "
          "same calls in the same order",
          describe(call), group_.label(group_.rank), mine.text(), group_.label(peer),
          theirs.text()),
      peer);
}

void GroupCommunicator::abort(const std::string& reason) { break_for_good(reason, -1); }

void GroupCommunicator::break_for_good(const std::string& reason, int peer) {
  {
    std::lock_guard lock(broken_mutex_);
    if (broken_.load(std::memory_order_relaxed)) return;
    broken_reason_ = reason;
    broken_peer_ = peer;
    broken_.store(true, std::memory_order_release);
  }
  transport_->abort(reason, peer);
}

void GroupCommunicator::throw_broken() {
  std::lock_guard lock(broken_mutex_);
  throw CommError(broken_reason_, broken_peer_);
}

CommStats GroupCommunicator::stats() const {
  CommStats stats;
  stats.calls = calls_.load(std::memory_order_relaxed);
  stats.bytes = bytes_.load(std::memory_order_relaxed);
  stats.seconds = 1e-9 * static_cast<double>(nanoseconds_.load(std::memory_order_relaxed));
  return stats;
}

}  // namespace tutti
