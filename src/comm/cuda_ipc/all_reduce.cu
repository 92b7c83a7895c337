#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "comm/cuda_ipc/ipc_device.cuh"
#include "comm/cuda_ipc/ipc_kernels.h"
#include "comm/cuda_ipc/launch.cuh"

namespace tutti::cuda_ipc {
namespace {

constexpr int kSmallThreads = 256;

__device__ void push_unit(const IpcGroup& g, size_t i, uint4 own, uint32_t epoch) {
  for (int r = 0; r < g.size; ++r) {
    if (r == g.rank) continue;
    uint4* to = low_latency_slot(g, r, g.rank, epoch) + 2 * i;
    store_volatile(to, {own.x, epoch, own.y, epoch});
    store_volatile(to + 1, {own.z, epoch, own.w, epoch});
  }
}

// The unit that `from` has sent; false: given up.
__device__ bool receive_unit(const IpcGroup& g, int from, size_t i, uint32_t epoch, uint4& unit) {
  const uint4* slot = low_latency_slot(g, g.rank, from, epoch) + 2 * i;
  Patience patience(g, epoch);
  for (;;) {
    const uint4 a = load_volatile(slot);
    const uint4 b = load_volatile(slot + 1);
    unit = {a.x, a.z, b.x, b.z};
    if (a.y == epoch && a.w == epoch && b.y == epoch && b.w == epoch) return true;
    if (!patience.more(from)) return false;
  }
}

// The sum of the unit over all ranks, in their order; false: given up.
template <typename T>
__device__ bool sum_unit(const IpcGroup& g, size_t i, uint4 own, uint32_t epoch, Lanes<T>& sum) {
  for (int r = 0; r < g.size; ++r) {
    uint4 part = own;
    if (r != g.rank && !receive_unit(g, r, i, epoch, part)) return false;
    if (r == 0) sum.set(part);
    else sum.add(part);
  }
  return true;
}

// Flags travel inside the data: {4 bytes, epoch, 4 bytes, epoch}. No fence, no second trip, twice the bytes.
template <typename T>
__global__ void __launch_bounds__(kSmallThreads)
    low_latency_kernel(const __grid_constant__ IpcGroup g, std::byte* data, size_t bytes) {
  begin(g);
  const uint32_t epoch = read_epoch(g);
  const size_t units = (bytes + 15) / 16;
  const size_t first = blockIdx.x * kSmallThreads + threadIdx.x;
  const size_t step = gridDim.x * kSmallThreads;
  for (size_t i = first; i < units; i += step) {
    push_unit(g, i, load_unit(data, i, bytes), epoch);
  }
  leave_epoch(g);
  for (size_t i = first; i < units; i += step) {
    Lanes<T> sum;
    if (!sum_unit(g, i, load_unit(data, i, bytes), epoch, sum)) return;
    store_unit(data, i, bytes, sum.get());
  }
}

__device__ float block_sum(float x, float* partial) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  if (lane == 0) partial[warp] = x;
  __syncthreads();
  x = lane < warps ? partial[lane] : 0.0f;
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

constexpr int kMostUnits = 2;  // of a thread

// A block a row. The sum is rounded before it is added, the stream before it is normed, as by one kernel after the other.
template <typename T>
__global__ void __launch_bounds__(1024)
    sum_add_norm_kernel(const __grid_constant__ IpcGroup g, const uint4* delta, uint4* residual, const float* weight, float eps,
                        uint4* out, int columns) {
  __shared__ float partial[32];
  begin(g);
  const uint32_t epoch = read_epoch(g);
  const int units = columns / Lanes<T>::kCount;
  const size_t row = static_cast<size_t>(blockIdx.x) * units;
  for (int i = threadIdx.x; i < units; i += blockDim.x) push_unit(g, row + i, delta[row + i], epoch);
  leave_epoch(g);
  Lanes<T> kept[kMostUnits];
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kMostUnits; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    Lanes<T> sum;
    if (i >= units || !sum_unit(g, row + i, delta[row + i], epoch, sum)) continue;
    kept[k].set(residual[row + i]);
    kept[k].add(sum.get());
    const uint4 bits = kept[k].get();
    residual[row + i] = bits;
    kept[k].set(bits);
#pragma unroll
    for (int j = 0; j < 4; ++j) squares += kept[k].v[j].x * kept[k].v[j].x + kept[k].v[j].y * kept[k].v[j].y;
  }
  const float factor = rsqrtf(block_sum(squares, partial) / columns + eps);
#pragma unroll
  for (int k = 0; k < kMostUnits; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= units) continue;
    const auto* w = reinterpret_cast<const float2*>(weight) + 4 * i;
#pragma unroll
    for (int j = 0; j < 4; ++j) kept[k].v[j] = {kept[k].v[j].x * factor * w[j].x, kept[k].v[j].y * factor * w[j].y};
    out[row + i] = kept[k].get();
  }
}

// The sum over all ranks by one block; those of other ranks lie in `slots` of the own region.
template <typename T>
__device__ void sum_units(const IpcGroup& g, std::byte* out, const std::byte* own, const std::byte* slots, size_t slot_bytes,
                          size_t bytes) {
  const size_t units = (bytes + 15) / 16;
  for (size_t i = threadIdx.x; i < units; i += blockDim.x) {
    uint4 parts[kMaxRanks];
    const uint4 mine = load_unit(own, i, bytes);
#pragma unroll
    for (int r = 0; r < kMaxRanks; ++r) {
      if (r >= g.size) continue;
      parts[r] = mine;
      if (r != g.rank) parts[r] = __ldcg(reinterpret_cast<const uint4*>(slots + r * slot_bytes) + i);
    }
    Lanes<T> sum;
    sum.set(parts[0]);
#pragma unroll
    for (int r = 1; r < kMaxRanks; ++r) {
      if (r < g.size) sum.add(parts[r]);
    }
    store_unit(out, i, bytes, sum.get());
  }
}

// Copies whole units; the slot has room for the last one.
__device__ void push_units(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t units = (bytes + 15) / 16;
  for (size_t i = threadIdx.x; i < units; i += blockDim.x) reinterpret_cast<uint4*>(to)[i] = load_unit(from, i, bytes);
}

__device__ size_t slot_bytes_of(int slots) { return kBulkBytes / slots / 256 * 256; }

template <typename T>
__global__ void __launch_bounds__(kThreads) one_shot_kernel(const __grid_constant__ IpcGroup g, std::byte* data, size_t bytes) {
  begin(g);
  const uint32_t epoch = read_epoch(g);
  leave_epoch(g);
  const size_t slot = slot_bytes_of(g.size);
  const Part part = part_of(bytes, blockIdx.x, gridDim.x);
  for (int step = 1; step < g.size; ++step) {
    const int r = (g.rank + step) % g.size;  // not all to the same rank at once
    push_units(bulk_of(g, r, epoch) + g.rank * slot + part.begin, data + part.begin, part.bytes);
  }
  if (!tell_and_wait(g, epoch, 0)) return;
  sum_units<T>(g, data + part.begin, data + part.begin, bulk_of(g, g.rank, epoch) + part.begin, slot, part.bytes);
}

// Phase 0: slice r goes to rank r, which sums it. Phase 1: the sums go to everybody. The first half of the bulk area takes
// the parts, the second the sums.
template <typename T>
__global__ void __launch_bounds__(kThreads) two_shot_kernel(const __grid_constant__ IpcGroup g, std::byte* data, size_t bytes) {
  begin(g);
  const uint32_t epoch = read_epoch(g);
  leave_epoch(g);
  const size_t slot = slot_bytes_of(2 * g.size);
  const auto part_in = [&](int rank) {  // this block's part of a rank's slice
    const Part slice = part_of(bytes, rank, g.size);
    const Part part = part_of(slice.bytes, blockIdx.x, gridDim.x);
    return Part{slice.begin + part.begin, part.bytes};
  };
  const auto in_slice = [&](const Part& part, int rank) { return part.begin - part_of(bytes, rank, g.size).begin; };
  for (int step = 1; step < g.size; ++step) {
    const int r = (g.rank + step) % g.size;
    const Part part = part_in(r);
    push_units(bulk_of(g, r, epoch) + g.rank * slot + in_slice(part, r), data + part.begin, part.bytes);
  }
  if (!tell_and_wait(g, epoch, 0)) return;
  const Part own = part_in(g.rank);
  sum_units<T>(g, data + own.begin, data + own.begin, bulk_of(g, g.rank, epoch) + in_slice(own, g.rank), slot, own.bytes);
  __syncthreads();
  for (int step = 1; step < g.size; ++step) {
    const int r = (g.rank + step) % g.size;
    push_units(bulk_of(g, r, epoch) + (g.size + g.rank) * slot + in_slice(own, g.rank), data + own.begin, own.bytes);
  }
  if (!tell_and_wait(g, epoch, 1)) return;
  for (int step = 1; step < g.size; ++step) {
    const int r = (g.rank + step) % g.size;
    const Part part = part_in(r);
    copy_by_block(data + part.begin, bulk_of(g, g.rank, epoch) + (g.size + r) * slot + in_slice(part, r), part.bytes);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    reduce_scatter_kernel(const __grid_constant__ IpcGroup g, const std::byte* send, size_t send_stride, std::byte* recv,
                          size_t bytes) {
  begin(g);
  const uint32_t epoch = read_epoch(g);
  leave_epoch(g);
  const size_t slot = slot_bytes_of(g.size);
  const Part part = part_of(bytes, blockIdx.x, gridDim.x);
  for (int step = 1; step < g.size; ++step) {
    const int r = (g.rank + step) % g.size;
    push_units(bulk_of(g, r, epoch) + g.rank * slot + part.begin, send + r * send_stride + part.begin, part.bytes);
  }
  if (!tell_and_wait(g, epoch, 0)) return;
  sum_units<T>(g, recv + part.begin, send + g.rank * send_stride + part.begin, bulk_of(g, g.rank, epoch) + part.begin, slot,
               part.bytes);
}

// Calls launch(T()) with the element type.
template <typename Launch>
void by_type(DType dtype, const Launch& launch) {
  switch (dtype) {
    case DType::kF32: return launch(float());
    case DType::kBF16: return launch(__nv_bfloat16());
    case DType::kF16: return launch(__half());
    case DType::kI32: return launch(int32_t());
    case DType::kI64: return launch(static_cast<long long>(0));
    default: TUTTI_CHECK_FAILED("no sum of " + std::string(dtype_name(dtype)));
  }
}

std::byte* data_of(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

size_t one_shot_limit(int size) { return kBulkBytes / static_cast<size_t>(size) / 256 * 256; }
size_t two_shot_limit() { return kBulkBytes / 2 - kMaxRanks * 4096; }

void all_reduce_low_latency(const IpcGroup& group, void* data, size_t bytes, DType dtype, cudaStream_t stream) {
  CHECK_LE(bytes, kLowLatencyBytes);
  const int blocks = blocks_for(bytes, 16 * kSmallThreads);
  by_type(dtype, [&](auto type) {
    launch("the low-latency all-reduce", group, low_latency_kernel<decltype(type)>, blocks, kSmallThreads, stream, data_of(data), bytes);
  });
}

bool can_fuse(const SumAddNorm& what) {
  const bool half = what.dtype == DType::kBF16 || what.dtype == DType::kF16;
  const auto addresses = reinterpret_cast<uintptr_t>(what.delta) | reinterpret_cast<uintptr_t>(what.residual) |
                         reinterpret_cast<uintptr_t>(what.out) | reinterpret_cast<uintptr_t>(what.weight);
  return half && addresses % 16 == 0 && what.columns % 8 == 0 && what.columns / 8 <= 1024 * kMostUnits && what.rows <= kMaxBlocks;
}

void all_reduce_add_norm(const IpcGroup& group, const SumAddNorm& what, cudaStream_t stream) {
  if (what.rows == 0) return;
  const int units = static_cast<int>(what.columns / 8);
  const int threads = std::min(1024, (units + 31) / 32 * 32);
  const auto go = [&](auto type) {
    launch("a sum with its norm", group, sum_add_norm_kernel<decltype(type)>, static_cast<int>(what.rows), threads, stream,
           static_cast<const uint4*>(what.delta), static_cast<uint4*>(what.residual), what.weight, what.eps,
           static_cast<uint4*>(what.out), static_cast<int>(what.columns));
  };
  if (what.dtype == DType::kBF16) go(__nv_bfloat16());
  else go(__half());
}

void all_reduce_one_shot(const IpcGroup& group, void* data, size_t bytes, DType dtype, cudaStream_t stream) {
  CHECK_LE(bytes, one_shot_limit(group.size));
  by_type(dtype, [&](auto type) {
    launch("the one-shot all-reduce", group, one_shot_kernel<decltype(type)>, blocks_for(bytes, 16 * kThreads), kThreads, stream,
           data_of(data), bytes);
  });
}

void all_reduce_two_shot(const IpcGroup& group, void* data, size_t bytes, DType dtype, cudaStream_t stream) {
  CHECK_LE(bytes, two_shot_limit());
  by_type(dtype, [&](auto type) {
    launch("the two-shot all-reduce", group, two_shot_kernel<decltype(type)>,
           blocks_for(bytes / static_cast<size_t>(group.size), 16 * kThreads), kThreads, stream, data_of(data), bytes);
  });
}

void reduce_scatter(const IpcGroup& group, const void* send, size_t send_stride, void* recv, size_t bytes, DType dtype,
                    cudaStream_t stream) {
  CHECK_LE(bytes, one_shot_limit(group.size));
  by_type(dtype, [&](auto type) {
    launch("the reduce-scatter", group, reduce_scatter_kernel<decltype(type)>, blocks_for(bytes, 16 * kThreads), kThreads, stream,
           static_cast<const std::byte*>(send), send_stride, data_of(recv), bytes);
  });
}

}  // namespace tutti::cuda_ipc
