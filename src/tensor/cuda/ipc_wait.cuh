// What every kernel that talks to other GPUs through their memory needs: stores and loads that they see, waits that end, and
// the number of the collective.
#pragma once

#include <cstdint>

#include "tensor/cuda/ipc_memory.h"

namespace tutti::cuda_ipc {

// Where `from`'s low-latency message lies in the region of `to`.
__device__ inline uint4* low_latency_slot(const IpcGroup& g, int to, int from, uint32_t epoch) {
  const size_t slot = (epoch & 1) * kMaxRanks + from;
  return reinterpret_cast<uint4*>(g.region[to] + kLowLatencyOffset + slot * kLowLatencySlot);
}

// 16 bytes of which each half arrives whole.
__device__ inline void store_volatile(uint4* to, uint4 v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ inline uint4 load_volatile(const uint4* from) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
// 8 bytes, likewise.
__device__ inline void store_volatile(uint2* to, uint2 v) {
  asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(v.x), "r"(v.y) : "memory");
}
__device__ inline uint2 load_volatile(const uint2* from) {
  uint2 v;
  asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from) : "memory");
  return v;
}
__device__ inline uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// Counts the polls of one wait and now and then looks whether it must end.
class Patience {
 public:
  __device__ Patience(const IpcGroup& g, uint32_t epoch) : g_(g), epoch_(epoch) {}

  // `peer`: who has not been heard. False: give up.
  __device__ bool more(int peer) {
    if ((++polls_ & 1023u) != 0) return true;
    return look(peer);
  }

 private:
  __device__ bool look(int peer) {
    const uint64_t now = now_ns();
    if (start_ == 0) start_ = now;
    const uint64_t timeout_ns = *reinterpret_cast<volatile uint64_t*>(&g_.status->timeout_ns);
    const bool aborted = *reinterpret_cast<volatile uint32_t*>(&g_.status->abort) != 0;
    if (!aborted && now - start_ < timeout_ns && *reinterpret_cast<volatile uint32_t*>(&g_.state->broken) == 0) return true;
    if (atomicExch(&g_.state->broken, 1u) == 0 && !aborted) {
      volatile IpcStatus* status = g_.status;
      status->peer = peer;
      status->epoch = epoch_;
      __threadfence_system();
      status->failed = 1;
    }
    return false;
  }

  const IpcGroup& g_;
  const uint32_t epoch_;
  uint32_t polls_ = 0;
  uint64_t start_ = 0;
};

// Every thread may read the epoch; leave_epoch() then counts it on.
__device__ inline uint32_t read_epoch(const IpcGroup& g) {
  return static_cast<uint32_t>(*reinterpret_cast<volatile uint64_t*>(&g.state->ticks) / kTicks) + 1;
}
// One thread of every block, after a barrier that all its threads came to with the epoch.
__device__ inline void count_block(const IpcGroup& g) {
  const uint32_t share = 0xffffffffu / gridDim.x;
  const uint64_t rest = kTicks - static_cast<uint64_t>(share) * (gridDim.x - 1);
  atomicAdd(reinterpret_cast<unsigned long long*>(&g.state->ticks), static_cast<unsigned long long>(blockIdx.x == 0 ? rest : share));
}
__device__ inline void leave_epoch(const IpcGroup& g) {
  __syncthreads();
  if (threadIdx.x == 0) count_block(g);
}

}  // namespace tutti::cuda_ipc
