// Collectives between the GPUs of one host through each other's memory, with NCCL for the sizes at which it was faster
// when the group started. Everything may be captured into a graph. Sums are in rank order but for those of NCCL, and the
// same on every rank. Where NCCL is not there, or refuses (several ranks on one GPU, a test mode under the MPS daemon),
// long messages go in pieces.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <string>

#include "comm/algorithm_table.h"
#include "comm/communicator.h"
#include "comm/cuda_ipc/ipc_peers.h"
#include "comm/device_wait.h"

namespace tutti::cuda_ipc {

class CudaIpcTransport final : public DeviceTransport, public FusedSums {
 public:
  // All ranks together. `nccl` may be nothing. Throws Unavailable when a pair of GPUs does not reach each other or the sums
  // of the self-test are wrong. `stream` and `control` are kept by reference and outlive the transport.
  CudaIpcTransport(CommGroup group, CudaStream& stream, Communicator& control, Deadline setup);
  ~CudaIpcTransport() override;

  // From here on large messages go through it where it is faster: measured now, by all ranks together.
  void add_nccl(std::unique_ptr<DeviceTransport> nccl);
  // Chooses ways by measuring. Without it, by size.
  void measure(Deadline deadline);
  // Sums never go on to their norm.
  void keep_sums_apart() { fuses_ = false; }
  // For benchmarks and tests: one way for every sum, and for everything else.
  void use_only(SumWay sums, SumWay moves);
  std::string ways() const;
  int ranks_on_this_gpu() const { return peers_.ranks_on_this_gpu(); }

  std::string_view name() const override { return nccl_ == nullptr ? "cuda_ipc" : "cuda_ipc+nccl"; }
  FusedSums* fused_sums() override { return this; }
  void all_reduce(const Call& call, void* data, int64_t count, DType dtype) override;
  // Where a sum of this size has its flags inside the data.
  bool takes(const SumAddNorm& what) const override;
  void all_reduce_add_norm(const Call& call, const SumAddNorm& what) override;
  bool sums_in_kernels(int64_t count) const override;
  const IpcGroup& sum_in_kernel(const Call& call) override;
  void all_gather(const Call& call, const void* send, void* recv, size_t bytes) override;
  void reduce_scatter(const Call& call, const void* send, void* recv, int64_t count, DType dtype) override;
  void broadcast(const Call& call, void* data, size_t bytes, int root) override;
  void all_to_all(const Call& call, const void* send, void* recv, size_t bytes) override;
  void send(const Call& call, const void* data, size_t bytes, int to) override;
  void recv(const Call& call, void* data, size_t bytes, int from) override;
  void barrier(const Call& call) override;
  void finish(const Call& call) override;
  void watch(const Call& call) override;
  void abort(const std::string& reason, int peer) override;
  void check() override;
  CommError late(const Call& call) override;

 private:
  void begin(const Call& call);
  void set_patience(const Call& call);
  void sum(const Call& call, SumWay way, void* data, size_t bytes, DType dtype);
  void sum_here(SumWay way, void* data, size_t bytes, DType dtype);
  void exchange_pieces(const void* send, size_t send_stride, void* recv, size_t recv_stride, size_t bytes, int only_from);
  bool by_nccl(size_t bytes) const { return nccl_ != nullptr && moves_.choose(bytes) == SumWay::kNccl; }
  std::string self_test(Deadline deadline);
  [[noreturn]] void throw_failed();

  const CommGroup group_;
  CudaStream& stream_;
  Communicator& control_;
  IpcPeers peers_;
  std::unique_ptr<DeviceTransport> nccl_;
  bool fuses_ = true;
  AlgorithmTable sums_;
  AlgorithmTable moves_;
  int64_t number_ = 0;  // of the last call; worker thread

  std::mutex abort_mutex_;
  std::string abort_reason_;
  int abort_peer_ = -1;
};

}  // namespace tutti::cuda_ipc
