#include "comm/nccl/nccl_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace tutti {
namespace {

using nccl::kInProgress;
using nccl::kSuccess;

constexpr auto kWatchInterval = std::chrono::milliseconds(50);
constexpr auto kLockPatience = std::chrono::seconds(2);
constexpr auto kPoll = std::chrono::microseconds(50);
// A step of prompts queues hundreds of calls. A stream tells its latest 64 marks apart, so that many of them are not marked
// at once: the others are covered by the next mark of watch().
constexpr size_t kMostMarked = 16;

int type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return nccl::kFloat32;
    case DType::kF16: return nccl::kFloat16;
    case DType::kBF16: return nccl::kBfloat16;
    case DType::kI32: return nccl::kInt32;
    case DType::kI64: return nccl::kInt64;
    default: TUTTI_CHECK_FAILED("no sum of " + std::string(dtype_name(dtype)));
  }
}

const void* piece(const void* data, int index, size_t bytes) {
  return static_cast<const std::byte*>(data) + static_cast<size_t>(index) * bytes;
}
void* piece(void* data, int index, size_t bytes) {
  return static_cast<std::byte*>(data) + static_cast<size_t>(index) * bytes;
}

// What rank 0 tells the others: an id, or why there is none.
struct IdMessage {
  nccl::UniqueId id;
  nccl::Result result;
};

}  // namespace

NcclTransport::NcclTransport(CommGroup group, const nccl::Api& api, DeviceStream& stream, Communicator& control, void* scratch,
                             Deadline setup)
    : group_(std::move(group)), api_(api), stream_(stream), control_(control), scratch_(scratch) {
  CHECK_EQ(control_.size(), group_.size);
  connect(setup);
  watchdog_ = std::thread([this] { run_watchdog(); });
}

NcclTransport::~NcclTransport() {
  {
    std::lock_guard lock(stop_mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  if (watchdog_.joinable()) watchdog_.join();
  // CommDestroy waits for the other ranks, which may be gone; what this rank has queued was waited for by finish().
  abort_comm();
}

void NcclTransport::share_id(nccl::UniqueId& id) {
  IdMessage message{};
  if (group_.rank == 0) message.result = api_.GetUniqueId(&message.id);
  control_.broadcast(&message, sizeof message, 0);
  if (message.result != kSuccess) {
    throw DeviceError(fmt::format("{}: NCCL gives no id for group {}: {} (NCCL_DEBUG=WARN says more)", group_.label(0), group_.name,
                                  api_.GetErrorString(message.result)));
  }
  id = message.id;
}

void NcclTransport::connect(Deadline setup) {
  nccl::UniqueId id;
  share_id(id);
  nccl::Config config;
  const auto start = Clock::now();
  const nccl::Result begun = api_.CommInitRankConfig(&comm_, group_.size, id, group_.rank, &config);
  const nccl::Result result = settled(begun, setup);
  if (result == kSuccess) return;
  const std::string reason = text_of(result);
  abort_comm();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (result == kInProgress) {
    throw name_late_rank(group_, control_, fmt::format("NCCL has not connected group {} within {:.1f} s", group_.name, seconds), 0);
  }
  throw DeviceError(fmt::format("{}: NCCL cannot connect group {}: {} (NCCL_DEBUG=INFO says more)", group_.label(group_.rank),
                                group_.name, reason));
}

// Non-blocking calls go on inside NCCL; kInProgress: still at the deadline.
nccl::Result NcclTransport::settled(nccl::Result result, Deadline deadline) {
  while (result == kInProgress) {
    const nccl::Result asked = api_.CommGetAsyncError(comm_, &result);
    if (asked != kSuccess) return asked;
    if (result != kInProgress || deadline.passed()) break;
    std::this_thread::sleep_for(kPoll);
  }
  return result;
}

std::string NcclTransport::text_of(nccl::Result result) {
  const char* detail = comm_ != nullptr && result != kInProgress ? api_.GetLastError(comm_) : nullptr;
  std::string text = api_.GetErrorString(result);
  if (detail != nullptr && *detail != '\0') text += fmt::format(" ({})", detail);
  return text;
}

void NcclTransport::enqueue(const Call& call, const std::function<nccl::Result(nccl::Comm, nccl::Stream)>& body) {
  check();
  number_ = call.number;
  nccl::Result result = kSuccess;
  std::string reason;
  {
    std::lock_guard lock(mutex_);
    if (comm_ == nullptr) result = kInProgress;  // aborted meanwhile: check() below says why
    else result = settled(body(comm_, stream_.handle()), call.deadline);
    if (result != kSuccess && comm_ != nullptr) reason = text_of(result);
  }
  check();
  if (result == kInProgress) throw late(call);
  if (result != kSuccess) {
    fail(fmt::format("{} over NCCL in group {}: {}", describe(call), group_.name, reason), /*final=*/false);
    check();
  }
  note_queued(call, /*always=*/false);
}

void NcclTransport::note_queued(const Call& call, bool always) {
  if (stream_.capturing()) return;
  std::lock_guard lock(queued_mutex_);
  while (!queued_.empty() && stream_.reached(queued_.front().mark)) queued_.pop_front();
  if (!always && queued_.size() >= kMostMarked) return;
  queued_.push_back({stream_.mark(), describe(call), call.start, call.deadline});
}

void NcclTransport::watch(const Call& call) {
  check();
  note_queued(call, /*always=*/true);
}

void NcclTransport::all_reduce(const Call& call, void* data, int64_t count, DType dtype) {
  enqueue(call, [&](nccl::Comm comm, nccl::Stream stream) {
    return api_.AllReduce(data, data, static_cast<size_t>(count), type_of(dtype), nccl::kSum, comm, stream);
  });
}

void NcclTransport::all_gather(const Call& call, const void* send, void* recv, size_t bytes) {
  enqueue(call, [&](nccl::Comm comm, nccl::Stream stream) {
    return api_.AllGather(send, recv, bytes, nccl::kUint8, comm, stream);
  });
}

void NcclTransport::reduce_scatter(const Call& call, const void* send, void* recv, int64_t count, DType dtype) {
  enqueue(call, [&](nccl::Comm comm, nccl::Stream stream) {
    return api_.ReduceScatter(send, recv, static_cast<size_t>(count), type_of(dtype), nccl::kSum, comm, stream);
  });
}

void NcclTransport::broadcast(const Call& call, void* data, size_t bytes, int root) {
  enqueue(call, [&](nccl::Comm comm, nccl::Stream stream) {
    return api_.Broadcast(data, data, bytes, nccl::kUint8, root, comm, stream);
  });
}

void NcclTransport::all_to_all(const Call& call, const void* send, void* recv, size_t bytes) {
  enqueue(call, [&](nccl::Comm comm, nccl::Stream stream) {
    nccl::Result result = api_.GroupStart();
    for (int r = 0; r < group_.size && result == kSuccess; ++r) {
      result = api_.Send(piece(send, r, bytes), bytes, nccl::kUint8, r, comm, stream);
      if (result == kSuccess) result = api_.Recv(piece(recv, r, bytes), bytes, nccl::kUint8, r, comm, stream);
    }
    const nccl::Result end = api_.GroupEnd();
    return result == kSuccess ? end : result;
  });
}

void NcclTransport::send(const Call& call, const void* data, size_t bytes, int to) {
  enqueue(call,
          [&](nccl::Comm comm, nccl::Stream stream) { return api_.Send(data, bytes, nccl::kUint8, to, comm, stream); });
}

void NcclTransport::recv(const Call& call, void* data, size_t bytes, int from) {
  enqueue(call,
          [&](nccl::Comm comm, nccl::Stream stream) { return api_.Recv(data, bytes, nccl::kUint8, from, comm, stream); });
}

void NcclTransport::barrier(const Call& call) {
  enqueue(call, [&](nccl::Comm comm, nccl::Stream stream) {
    return api_.AllReduce(scratch_, scratch_, 1, nccl::kInt32, nccl::kSum, comm, stream);
  });
}

void NcclTransport::finish(const Call& call) { wait_for_stream(*this, stream_, call); }

CommError NcclTransport::late(const Call& call) {
  fail(fmt::format("{} over NCCL in group {} has not ended after {:.1f} s", describe(call), group_.name, seconds_in(call)),
       /*final=*/false);
  try {
    check();
  } catch (const CommError& error) {
    return error;
  }
  TUTTI_CHECK_FAILED("a failed communicator passed its check");
}

void NcclTransport::check() {
  if (!failed_.load(std::memory_order_acquire)) return;
  std::unique_lock lock(error_mutex_);
  if (!error_is_final_) {
    const CommError named = name_late_rank(group_, control_, error_, number_);
    error_ = named.what();
    error_peer_ = named.peer();
    error_is_final_ = true;
  }
  throw CommError(error_, error_peer_);
}

void NcclTransport::fail(const std::string& what, bool final) {
  {
    std::lock_guard lock(error_mutex_);
    if (failed_.load(std::memory_order_relaxed)) return;
    error_ = what;
    error_is_final_ = final;
    failed_.store(true, std::memory_order_release);
  }
  abort_comm();
}

void NcclTransport::abort(const std::string& reason, int) { fail(reason, /*final=*/true); }

// Also where the worker thread hangs inside NCCL and keeps the lock: only the abort can free it then.
void NcclTransport::abort_comm() {
  const bool locked = mutex_.try_lock_for(kLockPatience);
  if (nccl::Comm comm = std::exchange(comm_, nullptr); comm != nullptr) (void)api_.CommAbort(comm);
  if (locked) mutex_.unlock();
}

void NcclTransport::run_watchdog() {
  std::unique_lock lock(stop_mutex_);
  while (!stopped_.wait_for(lock, kWatchInterval, [this] { return stop_; })) {
    lock.unlock();
    look();
    lock.lock();
  }
}

void NcclTransport::look() {
  if (failed_.load(std::memory_order_acquire)) return;
  std::string problem;
  try {
    std::lock_guard lock(queued_mutex_);
    while (!queued_.empty() && stream_.reached(queued_.front().mark)) queued_.pop_front();
    if (!queued_.empty() && queued_.front().deadline.passed()) {
      const Queued& oldest = queued_.front();
      problem = fmt::format("{} over NCCL in group {} has not ended after {:.1f} s", oldest.what, group_.name,
                            std::chrono::duration<double>(Clock::now() - oldest.start).count());
    }
  } catch (const DeviceError& error) {
    return fail(error.what(), /*final=*/true);
  }
  if (problem.empty()) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    nccl::Result result = kSuccess;
    if (!lock || comm_ == nullptr) return;
    const nccl::Result asked = api_.CommGetAsyncError(comm_, &result);
    if (asked != kSuccess) result = asked;
    if (result == kSuccess || result == kInProgress) return;
    problem = fmt::format("NCCL in group {}: {}", group_.name, text_of(result));
  }
  fail(problem, /*final=*/false);
}

}  // namespace tutti
