// The end of a product that holds a part of each sum: every rank writes its numbers, each with a flag, into the memory of all
// ranks, its own too, and adds up what has come in the ranks' order. One trip over the link and no kernel for it. A block
// gives all that it has before it waits, so that no rank waits for a block that waits.
#pragma once

#include "tensor/cuda/ipc_wait.cuh"

namespace tutti::cuda {

using cuda_ipc::IpcGroup;

__device__ __forceinline__ uint2* numbers_of(const IpcGroup& ranks, int to, int from, uint32_t epoch) {
  return reinterpret_cast<uint2*>(cuda_ipc::low_latency_slot(ranks, to, from, epoch));
}

// Number i of this rank's part.
__device__ __forceinline__ void give(const IpcGroup& ranks, uint32_t epoch, int64_t i, float number) {
  for (int r = 0; r < ranks.size; ++r) {
    cuda_ipc::store_volatile(numbers_of(ranks, r, ranks.rank, epoch) + i, {__float_as_uint(number), epoch});
  }
}

// The sum of all ranks' number i; false: given up.
__device__ __forceinline__ bool take_sum(const IpcGroup& ranks, uint32_t epoch, int64_t i, float& sum) {
  uint2 parts[cuda_ipc::kMaxRanks];
  cuda_ipc::Patience patience(ranks, epoch);
  for (;;) {
    int missing = -1;
#pragma unroll
    for (int r = 0; r < cuda_ipc::kMaxRanks; ++r) {
      if (r < ranks.size) parts[r] = cuda_ipc::load_volatile(numbers_of(ranks, ranks.rank, r, epoch) + i);
    }
#pragma unroll
    for (int r = 0; r < cuda_ipc::kMaxRanks; ++r) {
      if (r < ranks.size && parts[r].y != epoch) missing = r;
    }
    if (missing < 0) break;
    if (!patience.more(missing)) return false;
  }
  sum = 0;
#pragma unroll
  for (int r = 0; r < cuda_ipc::kMaxRanks; ++r) {
    if (r < ranks.size) sum += __uint_as_float(parts[r].x);
  }
  return true;
}

}  // namespace tutti::cuda
