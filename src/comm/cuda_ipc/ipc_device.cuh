// Inside the collectives' kernels: addresses in the regions, flags, and sums.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "tensor/cuda/ipc_wait.cuh"

namespace tutti::cuda_ipc {

__device__ inline IpcFlags& flags_of(const IpcGroup& g, int rank) { return *reinterpret_cast<IpcFlags*>(g.region[rank]); }

__device__ inline std::byte* bulk_of(const IpcGroup& g, int rank, uint32_t epoch) {
  return g.region[rank] + kBulkOffset + (epoch & 1) * kBulkBytes;
}

__device__ inline std::byte* mail_slot(const IpcGroup& g, int to, int from, int channel, uint32_t letter) {
  const size_t slot = (static_cast<size_t>(from) * kChannels + channel) * 2 + (letter & 1);
  return g.region[to] + kMailOffset + slot * kMailBytes;
}

__device__ inline void store_release(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ inline uint32_t load_acquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// First thing in a kernel: what was launched before is complete on return.
__device__ inline void begin(const IpcGroup& g) {
#if __CUDA_ARCH__ >= 900
  if (!g.lets_next_start) return;
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline bool wait_flag(const IpcGroup& g, const uint32_t* flag, uint32_t value, int peer) {
  Patience patience(g, value);
  while (load_acquire(flag) != value) {
    if (!patience.more(peer)) return false;
  }
  return true;
}

// Of a block: what it has written is there; says so to all ranks and waits for what they have written. False: give up.
__device__ inline bool tell_and_wait(const IpcGroup& g, uint32_t epoch, int phase) {
  __syncthreads();
  bool ok = true;
  const int r = static_cast<int>(threadIdx.x);
  if (r < g.size && r != g.rank) {
    __threadfence_system();
    store_release(&flags_of(g, r).arrived[epoch & 1][phase][g.rank][blockIdx.x], epoch);
    ok = wait_flag(g, &flags_of(g, g.rank).arrived[epoch & 1][phase][r][blockIdx.x], epoch, r);
  }
  return __syncthreads_and(ok) != 0;
}

// Sums of 16 bytes: half types in float, the others in their own type.
template <typename T>
struct Lanes {
  static constexpr int kCount = 16 / sizeof(T);
  alignas(16) T v[kCount];
  __device__ void set(uint4 bits) { *reinterpret_cast<uint4*>(v) = bits; }
  __device__ void add(uint4 bits) {
    alignas(16) T other[kCount];
    *reinterpret_cast<uint4*>(other) = bits;
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] += other[i];
  }
  __device__ uint4 get() const { return *reinterpret_cast<const uint4*>(v); }
};

template <typename Half, typename Half2>
struct HalfLanes {
  static constexpr int kCount = 8;
  float2 v[4];
  __device__ void set(uint4 bits) {
    const auto* pairs = reinterpret_cast<const Half2*>(&bits);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = widen(pairs[i]);
  }
  __device__ void add(uint4 bits) {
    const auto* pairs = reinterpret_cast<const Half2*>(&bits);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 other = widen(pairs[i]);
      v[i].x += other.x;
      v[i].y += other.y;
    }
  }
  __device__ uint4 get() const {
    uint4 bits;
    auto* pairs = reinterpret_cast<Half2*>(&bits);
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = narrow(v[i], Half2());
    return bits;
  }
  __device__ static float2 widen(__nv_bfloat162 x) { return __bfloat1622float2(x); }
  __device__ static float2 widen(__half2 x) { return __half22float2(x); }
  __device__ static __nv_bfloat162 narrow(float2 x, __nv_bfloat162) { return __float22bfloat162_rn(x); }
  __device__ static __half2 narrow(float2 x, __half2) { return __float22half2_rn(x); }
};
template <>
struct Lanes<__nv_bfloat16> : HalfLanes<__nv_bfloat16, __nv_bfloat162> {};
template <>
struct Lanes<__half> : HalfLanes<__half, __half2> {};

__device__ inline bool on_16_bytes(const void* a) { return (reinterpret_cast<uintptr_t>(a) & 15) == 0; }

// The bytes [begin, end) as a unit: the end of a message, or one that is not aligned.
__device__ __noinline__ inline uint4 load_bytes(const std::byte* data, size_t begin, size_t end) {
  uint4 v = {0, 0, 0, 0};
  for (size_t b = begin; b < end; ++b) reinterpret_cast<std::byte*>(&v)[b - begin] = data[b];
  return v;
}
__device__ __noinline__ inline void store_bytes(std::byte* data, size_t begin, size_t end, uint4 v) {
  for (size_t b = begin; b < end; ++b) data[b] = reinterpret_cast<const std::byte*>(&v)[b - begin];
}
// The 16 bytes of a message at unit `i`.
__device__ inline uint4 load_unit(const std::byte* data, size_t i, size_t bytes) {
  if (16 * i + 16 <= bytes && on_16_bytes(data)) return reinterpret_cast<const uint4*>(data)[i];
  return load_bytes(data, 16 * i, min(bytes, 16 * i + 16));
}
__device__ inline void store_unit(std::byte* data, size_t i, size_t bytes, uint4 v) {
  if (16 * i + 16 <= bytes && on_16_bytes(data)) reinterpret_cast<uint4*>(data)[i] = v;
  else store_bytes(data, 16 * i, min(bytes, 16 * i + 16), v);
}

// By all threads of a block; any alignment.
__device__ inline void copy_by_block(std::byte* to, const std::byte* from, size_t bytes) {
  size_t done = 0;
  if (on_16_bytes(to) && on_16_bytes(from)) {
    const size_t units = bytes / 16;
    for (size_t i = threadIdx.x; i < units; i += blockDim.x) {
      reinterpret_cast<uint4*>(to)[i] = __ldcg(reinterpret_cast<const uint4*>(from) + i);
    }
    done = 16 * units;
  }
  for (size_t b = done + threadIdx.x; b < bytes; b += blockDim.x) to[b] = from[b];
}

// What block `index` of `count` handles of [0, bytes): whole units of 16 bytes but for the end.
struct Part {
  size_t begin;
  size_t bytes;
};
__device__ inline Part part_of(size_t bytes, int index, int count) {
  const size_t units = (bytes + 15) / 16;
  const size_t per_part = 16 * ((units + count - 1) / count);
  const size_t begin = min(bytes, per_part * index);
  return {begin, min(bytes, begin + per_part) - begin};
}

}  // namespace tutti::cuda_ipc
