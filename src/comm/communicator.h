// Collectives of one group of ranks. A communicator of size 1 is a real one: no caller asks for the
// size first.
//
// A communicator belongs to one kind of memory. Those of the CPU (make_communicator) return when the
// result is in place. Those of a GPU (make_device_communicator) take pointers into its memory, queue
// the work on their stream and return; results are there for what the stream does next, and an error
// comes out of finish() or of a later call.
//
// All ranks of a group make the same calls in the same order (debug builds hash the sequence and
// compare). A call returns when the result is in place, or throws CommError that names the late or
// dead rank, the collective and the link; after that the communicator is broken and every further
// call throws the same. Reducing collectives add in rank order and give the same bits on every
// rank. One calling thread at a time; abort() from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace tutti {

namespace cuda_ipc {
struct IpcGroup;
}

// What the ranks of a group spent in collectives; for /metrics and the answer's summary.
struct CommStats {
  int64_t calls = 0;
  int64_t bytes = 0;     // payload handed in by the caller
  double seconds = 0.0;  // inside calls, waiting for others included
};

// Of a step's tokens: residual += the sum over ranks of delta, out = rms_norm(residual). In a GPU's memory, all
// [rows, columns] of `dtype` and contiguous but for the norm's weight, F32 [columns]. delta is used up.
struct SumAddNorm {
  void* delta;
  void* residual;
  const float* weight;
  float eps;
  void* out;
  int64_t rows;
  int64_t columns;
  DType dtype;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view transport()
      const = 0;  // "self", "in_process", "shm", "tcp", "hierarchical", "cuda_ipc", "nccl", ...

  // In place: data[i] = sum over ranks, in rank order. `count` elements of F32, F16, BF16, I32 or
  // I64; half types are added in float32 and rounded once.
  virtual void all_reduce(void* data, int64_t count, DType dtype) = 0;
  // All three in one kernel. False: there is none for this case, and nothing was done. The same on all ranks.
  virtual bool all_reduce_add_norm(const SumAddNorm& what) = 0;
  // The next kernel on the stream adds up `count` F32 numbers over the ranks itself (ops::linear_add): what it needs for that,
  // valid as long as the communicator. It counts as an all-reduce. nullptr: this group has no such way, nothing was done; the
  // same on all ranks.
  virtual const cuda_ipc::IpcGroup* sum_in_kernel(int64_t count) = 0;
  // recv holds size() * bytes, in rank order. `send` may be recv + rank * bytes.
  virtual void all_gather(const void* send, void* recv, size_t bytes) = 0;
  // recv gets this rank's `count` elements of the sum of all ranks' size() * count elements.
  virtual void reduce_scatter(const void* send, void* recv, int64_t count, DType dtype) = 0;
  virtual void broadcast(void* data, size_t bytes, int root) = 0;
  // send and recv hold size() pieces of `bytes`; piece r of send goes to rank r.
  virtual void all_to_all(const void* send, void* recv, size_t bytes) = 0;
  // This many messages of up to 64 KiB in all to a rank may lie unread: send() then returns at once. More or larger ones may
  // wait for recv().
  static constexpr size_t kMostUnread = 8;
  virtual void send(const void* data, size_t bytes, int to) = 0;
  virtual void recv(void* data, size_t bytes, int from) = 0;
  virtual void barrier() = 0;
  // Returns when the results of all calls so far are in place: at once on the CPU; on a GPU when its
  // stream has come so far, captured graphs included. Throws what a call on the stream ran into.
  virtual void finish() = 0;
  // Does not wait: throws what calls so far have run into. On a GPU what is queued now, captured graphs
  // included, has from now on the call's timeout to end. To be called once a step.
  virtual void watch() = 0;

  // How long one call may take before the missing rank is named.
  virtual void set_timeout(std::chrono::nanoseconds timeout) = 0;
  // Frees every rank of this process that waits in a call: it throws CommError(reason). Any thread.
  virtual void abort(const std::string& reason) = 0;
  virtual CommStats stats() const = 0;
};

// The only rank of its group.
std::unique_ptr<Communicator> make_self_communicator();

}  // namespace tutti
