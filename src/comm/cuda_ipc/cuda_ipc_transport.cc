#include "comm/cuda_ipc/cuda_ipc_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "comm/cuda_ipc/ipc_kernels.h"
#include "comm/cuda_ipc/ipc_trial.h"
#include "comm/reduce.h"

namespace tutti::cuda_ipc {
namespace {

constexpr auto kSelfTestTimeout = std::chrono::seconds(10);
constexpr size_t kOneShotBytes = size_t{256} << 10;  // before anything is measured

const std::byte* at(const void* data, size_t offset) { return static_cast<const std::byte*>(data) + offset; }
std::byte* at(void* data, size_t offset) { return static_cast<std::byte*>(data) + offset; }

}  // namespace

CudaIpcTransport::CudaIpcTransport(CommGroup group, CudaStream& stream, Communicator& control, Deadline setup)
    : group_(std::move(group)),
      stream_(stream),
      control_(control),
      peers_(group_, stream, control, setup),
      sums_(kOneShotBytes),
      moves_(kBulkBytes) {
  const Deadline limit(std::min(setup.instant(), Clock::now() + kSelfTestTimeout));
  peers_.status().timeout_ns = static_cast<uint64_t>(limit.left().count());
  agree(control_, group_, self_test(limit));
  sums_.set_from(0, SumWay::kLowLatency);
  sums_.set_from(kOneShotBytes, SumWay::kTwoShot);
  moves_.set_from(0, SumWay::kOneShot);
}

CudaIpcTransport::~CudaIpcTransport() = default;

void CudaIpcTransport::add_nccl(std::unique_ptr<DeviceTransport> nccl) {
  nccl_ = std::move(nccl);
  sums_.set_from(kBulkBytes / 2, SumWay::kNccl);
  moves_.set_from(kBulkBytes / 4, SumWay::kNccl);
}

void CudaIpcTransport::use_only(SumWay sums, SumWay moves) {
  CHECK(nccl_ != nullptr || (sums != SumWay::kNccl && moves != SumWay::kNccl));
  sums_.set_from(0, sums);
  moves_.set_from(0, moves);
}

std::string CudaIpcTransport::ways() const {
  return fmt::format("sums {}; moves {}", sums_.text(), moves_.text());
}

std::string CudaIpcTransport::self_test(Deadline deadline) {
  SelfTest test;
  test.group = group_;
  test.stream = &stream_;
  test.deadline = deadline;
  test.sum = [&](SumWay way, void* data, size_t bytes, DType dtype) { sum_here(way, data, bytes, dtype); };
  test.gather = [&](const void* send, void* recv, size_t bytes) { exchange_pieces(send, 0, recv, bytes, bytes, -1); };
  test.failed = [&] { return peers_.status().failed != 0; };
  try {
    return run_self_test(test);
  } catch (const DeviceError& error) {
    return error.what();
  }
}

void CudaIpcTransport::measure(Deadline deadline) {
  const Call call{"measuring", 0, Clock::now(), deadline};
  Measurement measurement(stream_, control_, [&] { finish({call.name, call.number, Clock::now(), deadline}); });
  std::vector<SumWay> ways = {SumWay::kLowLatency, SumWay::kOneShot, SumWay::kTwoShot};
  std::vector<SumWay> move_ways = {SumWay::kOneShot};
  if (nccl_ != nullptr) {
    ways.push_back(SumWay::kNccl);
    move_ways.push_back(SumWay::kNccl);
  }
  begin(call);
  measurement.choose(sums_, ways, Measurement::kLargestBytes, [&](SumWay way, void* data, size_t bytes) { sum(call, way, data, bytes, DType::kBF16); });
  if (nccl_ == nullptr) return;
  // Of everything that moves and does not add, what has to be cut up most.
  const auto ranks = static_cast<size_t>(group_.size);
  measurement.choose(moves_, move_ways, Measurement::kRoomBytes / (2 * ranks), [&](SumWay way, void* data, size_t bytes) {
    void* to = at(data, ranks * bytes);
    if (way == SumWay::kNccl) nccl_->all_to_all(call, data, to, bytes);
    else exchange_pieces(data, bytes, to, bytes, bytes, -1);
  });
}

void CudaIpcTransport::set_patience(const Call& call) {
  peers_.status().timeout_ns = static_cast<uint64_t>(std::max<int64_t>(1, (call.deadline.instant() - call.start).count()));
}

void CudaIpcTransport::begin(const Call& call) {
  check();
  number_ = call.number;
  set_patience(call);
}

void CudaIpcTransport::all_reduce(const Call& call, void* data, int64_t count, DType dtype) {
  begin(call);
  const size_t bytes = dtype_bytes(dtype, count);
  sum(call, sums_.choose(bytes), data, bytes, dtype);
}

bool CudaIpcTransport::takes(const SumAddNorm& what) const {
  const size_t bytes = dtype_bytes(what.dtype, what.rows * what.columns);
  return fuses_ && bytes <= kLowLatencyBytes && sums_.choose(bytes) == SumWay::kLowLatency && peers_.ranks_on_this_gpu() == 1 && can_fuse(what);
}

void CudaIpcTransport::all_reduce_add_norm(const Call& call, const SumAddNorm& what) {
  begin(call);
  cuda_ipc::all_reduce_add_norm(peers_.kernel_group(), what, stream_.stream());
}

bool CudaIpcTransport::sums_in_kernels(int64_t count) const {
  return fuses_ && dtype_bytes(DType::kF32, count) <= kLowLatencyBytes && peers_.ranks_on_this_gpu() == 1 && peers_.alike();
}

const IpcGroup& CudaIpcTransport::sum_in_kernel(const Call& call) {
  begin(call);
  return peers_.kernel_group();
}

void CudaIpcTransport::sum(const Call& call, SumWay way, void* data, size_t bytes, DType dtype) {
  if (way == SumWay::kNccl) {
    nccl_->all_reduce(call, data, static_cast<int64_t>(bytes / dtype_bytes(dtype, 1)), dtype);
  } else {
    sum_here(way, data, bytes, dtype);
  }
}

// A message too long for the areas goes in pieces.
void CudaIpcTransport::sum_here(SumWay way, void* data, size_t bytes, DType dtype) {
  const IpcGroup& group = peers_.kernel_group();
  const cudaStream_t stream = stream_.stream();
  const size_t limit = way == SumWay::kLowLatency ? kLowLatencyBytes
                       : way == SumWay::kOneShot  ? one_shot_limit(group_.size)
                                                  : two_shot_limit();
  for (size_t done = 0; done < bytes; done += limit) {
    const size_t piece = std::min(limit, bytes - done);
    if (way == SumWay::kLowLatency) all_reduce_low_latency(group, at(data, done), piece, dtype, stream);
    else if (way == SumWay::kOneShot) all_reduce_one_shot(group, at(data, done), piece, dtype, stream);
    else all_reduce_two_shot(group, at(data, done), piece, dtype, stream);
  }
}

void CudaIpcTransport::exchange_pieces(const void* send, size_t send_stride, void* recv, size_t recv_stride, size_t bytes,
                                       int only_from) {
  const size_t limit = one_shot_limit(group_.size);
  size_t done = 0;
  do {  // at least once: a message of no bytes is a barrier
    const size_t piece = std::min(limit, bytes - done);
    exchange(peers_.kernel_group(), {at(send, done), send_stride, at(recv, done), recv_stride, piece, only_from}, stream_.stream());
    done += piece;
  } while (done < bytes);
}

void CudaIpcTransport::all_gather(const Call& call, const void* send, void* recv, size_t bytes) {
  begin(call);
  if (by_nccl(bytes)) return nccl_->all_gather(call, send, recv, bytes);
  exchange_pieces(send, 0, recv, bytes, bytes, -1);
}

void CudaIpcTransport::all_to_all(const Call& call, const void* send, void* recv, size_t bytes) {
  begin(call);
  if (by_nccl(bytes)) return nccl_->all_to_all(call, send, recv, bytes);
  exchange_pieces(send, bytes, recv, bytes, bytes, -1);
}

void CudaIpcTransport::broadcast(const Call& call, void* data, size_t bytes, int root) {
  begin(call);
  if (by_nccl(bytes)) return nccl_->broadcast(call, data, bytes, root);
  exchange_pieces(data, 0, data, 0, bytes, root);
}

void CudaIpcTransport::reduce_scatter(const Call& call, const void* send, void* recv, int64_t count, DType dtype) {
  begin(call);
  const size_t bytes = dtype_bytes(dtype, count);
  if (by_nccl(bytes)) return nccl_->reduce_scatter(call, send, recv, count, dtype);
  const size_t limit = one_shot_limit(group_.size);
  for (size_t done = 0; done < bytes; done += limit) {
    cuda_ipc::reduce_scatter(peers_.kernel_group(), at(send, done), bytes, at(recv, done), std::min(limit, bytes - done), dtype,
                             stream_.stream());
  }
}

void CudaIpcTransport::send(const Call& call, const void* data, size_t bytes, int to) {
  begin(call);
  if (by_nccl(bytes)) return nccl_->send(call, data, bytes, to);
  cuda_ipc::send(peers_.kernel_group(), data, bytes, to, stream_.stream());
}

void CudaIpcTransport::recv(const Call& call, void* data, size_t bytes, int from) {
  begin(call);
  if (by_nccl(bytes)) return nccl_->recv(call, data, bytes, from);
  cuda_ipc::recv(peers_.kernel_group(), data, bytes, from, stream_.stream());
}

void CudaIpcTransport::barrier(const Call& call) {
  begin(call);
  exchange_pieces(nullptr, 0, nullptr, 0, 0, -1);
}

void CudaIpcTransport::finish(const Call& call) { wait_for_stream(*this, stream_, call); }

void CudaIpcTransport::watch(const Call& call) {
  check();
  set_patience(call);  // of calls in graphs, too
  if (nccl_ != nullptr) nccl_->watch(call);
}

// The kernels end by themselves; what the host wrote first counts.
void CudaIpcTransport::abort(const std::string& reason, int peer) {
  {
    std::lock_guard lock(abort_mutex_);
    if (abort_reason_.empty()) {
      abort_reason_ = reason;
      abort_peer_ = peer;
    }
  }
  peers_.status().abort = 1;
  if (nccl_ != nullptr) nccl_->abort(reason, peer);
}

void CudaIpcTransport::check() {
  {
    std::lock_guard lock(abort_mutex_);
    if (!abort_reason_.empty()) throw CommError(abort_reason_, abort_peer_);
  }
  if (peers_.status().failed != 0) throw_failed();
  if (nccl_ != nullptr) nccl_->check();
}

void CudaIpcTransport::throw_failed() {
  const int peer = peers_.status().peer;
  const double seconds = 1e-9 * static_cast<double>(peers_.status().timeout_ns);
  const CommError named = name_late_rank(
      group_, control_,
      fmt::format("a call between the GPUs of group {} has waited {:.1f} s for {}", group_.name, seconds, group_.label(peer)),
      number_);
  throw CommError(named.what(), named.peer() >= 0 ? named.peer() : peer);
}

CommError CudaIpcTransport::late(const Call& call) {
  return name_late_rank(group_, control_,
                        fmt::format("{} between the GPUs of group {} has not ended after {:.1f} s", describe(call), group_.name,
                                    seconds_in(call)),
                        number_);
}

}  // namespace tutti::cuda_ipc
