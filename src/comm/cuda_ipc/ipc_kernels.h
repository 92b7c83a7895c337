// The kernels of the IPC collectives. Each launch is asynchronous on its stream, reads its epoch from the device (so it may
// be captured into a graph) and ends by itself: a wait that passes the group's timeout, or that the host aborts, leaves
// the result undefined and says so in IpcStatus. Throws DeviceError when a launch fails. Worker thread only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "comm/communicator.h"
#include "tensor/cuda/ipc_memory.h"
#include "tensor/dtype.h"

namespace tutti::cuda_ipc {

// In place. Sums in rank order, half types in float32 and rounded once. At most kLowLatencyBytes.
void all_reduce_low_latency(const IpcGroup& group, void* data, size_t bytes, DType dtype, cudaStream_t stream);
// Every rank gets all parts. At most one_shot_limit(size).
void all_reduce_one_shot(const IpcGroup& group, void* data, size_t bytes, DType dtype, cudaStream_t stream);
// Every rank sums a slice and passes it on. At most two_shot_limit().
void all_reduce_two_shot(const IpcGroup& group, void* data, size_t bytes, DType dtype, cudaStream_t stream);

// The low-latency sum, the addition and the norm; a block takes a row.
bool can_fuse(const SumAddNorm& what);
void all_reduce_add_norm(const IpcGroup& group, const SumAddNorm& what, cudaStream_t stream);

size_t one_shot_limit(int size);
size_t two_shot_limit();

// Every rank gives every rank a piece. Piece r of `send` lies at r * send_stride and reaches rank r, which keeps it at
// (its sender) * recv_stride. At most one_shot_limit(size) bytes a piece. With `only_from` the others send nothing and the
// memory for their pieces stays as it is.
struct Exchange {
  const void* send;
  size_t send_stride;  // 0: everybody gets the same
  void* recv;
  size_t recv_stride;
  size_t bytes;
  int only_from = -1;
};
void exchange(const IpcGroup& group, const Exchange& what, cudaStream_t stream);
// recv = sum over ranks of their piece for this rank; at most one_shot_limit(size) bytes a piece.
void reduce_scatter(const IpcGroup& group, const void* send, size_t send_stride, void* recv, size_t bytes, DType dtype,
                    cudaStream_t stream);

// A letter of kMailBytes a channel may lie unread twice, then send waits for recv.
void send(const IpcGroup& group, const void* data, size_t bytes, int to, cudaStream_t stream);
void recv(const IpcGroup& group, void* data, size_t bytes, int from, cudaStream_t stream);

// Writes `value` into the probe flag of `to`; a rank then reads its own (the pair's test before any use).
void probe(const IpcGroup& group, int to, uint32_t value, cudaStream_t stream);

}  // namespace tutti::cuda_ipc
