// Blocks of a cluster: a barrier among their threads, and loads from each other's shared memory. Before compute capability
// 9.0 a cluster is one block.
#pragma once

#include "ops/cuda/device.cuh"

namespace tutti::cuda {

__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}

// Between the two every thread of the cluster that has not ended has arrived, and what it wrote before is seen.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#else
  __syncthreads();
#endif
}

// Where `p` of this block's shared memory lies in that of another one.
__device__ __forceinline__ uint32_t address_in_block(const void* p, unsigned rank) {
  uint32_t address = shared_address(p);
#if __CUDA_ARCH__ >= 900
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(address), "r"(rank));
#endif
  return address;
}

__device__ __forceinline__ float2 load_of_block(const float2* p, unsigned rank) {
#if __CUDA_ARCH__ >= 900
  float2 v;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address_in_block(p, rank)) : "memory");
  return v;
#else
  return *p;
#endif
}

__device__ __forceinline__ float4 load_of_block(const float4* p, unsigned rank) {
#if __CUDA_ARCH__ >= 900
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address_in_block(p, rank))
               : "memory");
  return v;
#else
  return *p;
#endif
}

}  // namespace tutti::cuda
