#include "base/check.h"
#include "comm/cuda_ipc/ipc_device.cuh"
#include "comm/cuda_ipc/ipc_kernels.h"
#include "comm/cuda_ipc/launch.cuh"

namespace tutti::cuda_ipc {
namespace {

__global__ void __launch_bounds__(kThreads) exchange_kernel(const __grid_constant__ IpcGroup g, Exchange what) {
  begin(g);
  const uint32_t epoch = read_epoch(g);
  leave_epoch(g);
  const size_t slot = kBulkBytes / g.size / 256 * 256;
  const Part part = part_of(what.bytes, blockIdx.x, gridDim.x);
  const auto gives = [&](int rank) { return what.only_from < 0 || what.only_from == rank; };
  const std::byte* send = static_cast<const std::byte*>(what.send) + part.begin;
  std::byte* recv = static_cast<std::byte*>(what.recv) + part.begin;
  for (int step = 1; step < g.size && gives(g.rank); ++step) {
    const int r = (g.rank + step) % g.size;
    copy_by_block(bulk_of(g, r, epoch) + g.rank * slot + part.begin, send + r * what.send_stride, part.bytes);
  }
  if (!tell_and_wait(g, epoch, 0)) return;
  for (int r = 0; r < g.size; ++r) {
    if (!gives(r)) continue;
    std::byte* to = recv + r * what.recv_stride;
    const std::byte* from = r == g.rank ? send + r * what.send_stride : bulk_of(g, g.rank, epoch) + r * slot + part.begin;
    if (to != from) copy_by_block(to, from, part.bytes);
  }
}

// By one thread: polls until `ready(flag)`.
template <typename Ready>
__device__ bool wait_until(const IpcGroup& g, const uint32_t* flag, int peer, uint32_t letter, const Ready& ready) {
  Patience patience(g, letter);
  while (!ready(load_acquire(flag))) {
    if (!patience.more(peer)) return false;
  }
  return true;
}

// A block is a channel. Its letters are numbered from 1; the reader notes the last that it is done with.
__global__ void __launch_bounds__(kThreads)
    send_kernel(const __grid_constant__ IpcGroup g, const std::byte* data, size_t bytes, int to) {
  begin(g);
  const int channel = static_cast<int>(blockIdx.x);
  const Part part = part_of(bytes, channel, kChannels);
  uint32_t letter = g.state->sent[to][channel];
  for (size_t done = 0; done < part.bytes; done += kMailBytes) {
    ++letter;
    bool ok = true;
    if (threadIdx.x == 0) {
      ok = wait_until(g, &flags_of(g, g.rank).read[to][channel], to, letter, [&](uint32_t read) { return letter - read <= 2; });
    }
    if (!__syncthreads_and(ok)) return;
    copy_by_block(mail_slot(g, to, g.rank, channel, letter), data + part.begin + done, min(kMailBytes, part.bytes - done));
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence_system();
      store_release(&flags_of(g, to).letters[g.rank][channel], letter);
    }
  }
  if (threadIdx.x == 0) g.state->sent[to][channel] = letter;
}

__global__ void __launch_bounds__(kThreads)
    recv_kernel(const __grid_constant__ IpcGroup g, std::byte* data, size_t bytes, int from) {
  begin(g);
  const int channel = static_cast<int>(blockIdx.x);
  const Part part = part_of(bytes, channel, kChannels);
  uint32_t letter = g.state->received[from][channel];
  for (size_t done = 0; done < part.bytes; done += kMailBytes) {
    ++letter;
    bool ok = true;
    if (threadIdx.x == 0) {  // the writer may be one letter ahead
      ok = wait_until(g, &flags_of(g, g.rank).letters[from][channel], from, letter,
                      [&](uint32_t written) { return written - letter <= 1; });
    }
    if (!__syncthreads_and(ok)) return;
    copy_by_block(data + part.begin + done, mail_slot(g, g.rank, from, channel, letter), min(kMailBytes, part.bytes - done));
    __syncthreads();
    if (threadIdx.x == 0) store_release(&flags_of(g, from).read[g.rank][channel], letter);
  }
  if (threadIdx.x == 0) g.state->received[from][channel] = letter;
}

__global__ void probe_kernel(const __grid_constant__ IpcGroup g, int to, uint32_t value) {
  begin(g);
  store_release(&flags_of(g, to).probe[g.rank], value);
}

}  // namespace

void exchange(const IpcGroup& group, const Exchange& what, cudaStream_t stream) {
  CHECK_LE(what.bytes, one_shot_limit(group.size));
  launch("an exchange", group, exchange_kernel, blocks_for(what.bytes, 16 * kThreads), kThreads, stream, what);
}

void send(const IpcGroup& group, const void* data, size_t bytes, int to, cudaStream_t stream) {
  launch("a send", group, send_kernel, kChannels, kThreads, stream, static_cast<const std::byte*>(data), bytes, to);
}

void recv(const IpcGroup& group, void* data, size_t bytes, int from, cudaStream_t stream) {
  launch("a recv", group, recv_kernel, kChannels, kThreads, stream, static_cast<std::byte*>(data), bytes, from);
}

void probe(const IpcGroup& group, int to, uint32_t value, cudaStream_t stream) {
  launch("the test of a pair", group, probe_kernel, 1, 1, stream, to, value);
}

}  // namespace tutti::cuda_ipc
