// What a way of moving bytes between ranks has to offer. GroupCommunicator stands on one Transport
// and adds what all of them need: numbers, statistics, argument checks, the sequence check and
// "broken once, broken for good".
//
// A call ends when the result is in place or throws CommError. One calling thread at a time;
// abort() from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "comm/communicator.h"
#include "tensor/dtype.h"

namespace tutti {

// One collective on its way; named in errors as "all-reduce 57".
struct Call {
  std::string_view name;
  int64_t number;
  Clock::time_point start;
  Deadline deadline;
};

// The ranks that share a transport, as one of them sees it.
struct CommGroup {
  int rank = 0;
  int size = 1;
  std::vector<std::string> labels;  // a rank's name in errors: "rank 3 (node2 cpu 1)"
  std::string name;    // the same on all its ranks, different for every group of a cluster
  uint64_t epoch = 0;  // of the cluster
  std::chrono::nanoseconds spin{0};  // how long a wait polls before it sleeps

  // Prefix of the group's entries in the store.
  std::string key() const { return "comm/" + name + "/" + std::to_string(epoch); }
  const std::string& label(int r) const { return labels[static_cast<size_t>(r)]; }
};

// Sums that go on to what follows them; some transports of GPUs have it.
class FusedSums {
 public:
  virtual ~FusedSums() = default;
  virtual bool takes(const SumAddNorm& what) const = 0;
  virtual void all_reduce_add_norm(const Call& call, const SumAddNorm& what) = 0;
  virtual bool sums_in_kernels(int64_t count) const = 0;
  virtual const cuda_ipc::IpcGroup& sum_in_kernel(const Call& call) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view name() const = 0;
  virtual FusedSums* fused_sums() { return nullptr; }

  // The meaning of each is that of the same function of Communicator.
  virtual void all_reduce(const Call& call, void* data, int64_t count, DType dtype) = 0;
  virtual void all_gather(const Call& call, const void* send, void* recv, size_t bytes) = 0;
  virtual void reduce_scatter(const Call& call, const void* send, void* recv, int64_t count,
                              DType dtype) = 0;
  virtual void broadcast(const Call& call, void* data, size_t bytes, int root) = 0;
  virtual void all_to_all(const Call& call, const void* send, void* recv, size_t bytes) = 0;
  virtual void send(const Call& call, const void* data, size_t bytes, int to) = 0;
  virtual void recv(const Call& call, void* data, size_t bytes, int from) = 0;
  virtual void barrier(const Call& call) = 0;
  virtual void finish(const Call& call) = 0;
  virtual void watch(const Call& call) = 0;

  // Ends the call that waits, here and on the ranks that can still be told, with CommError(reason,
  // peer). Any thread.
  virtual void abort(const std::string& reason, int peer) = 0;
};

// Of a group of one.
std::unique_ptr<Transport> make_self_transport();

// The largest of what all ranks measured, the same on all.
double slowest_of(Transport& transport, const Call& call, int size, double seconds);

// "all-reduce 57"
std::string describe(const Call& call);
// Seconds since the call began.
double seconds_in(const Call& call);

}  // namespace tutti
