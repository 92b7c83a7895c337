// The largest of a row of logits, or a token drawn from it. A kernel finds the largest of parts of rows; then a block for each row
// joins them, and draws where it is asked to, for which it reads the row a few times (rows lie in the L2). Sums are taken
// in an order that depends on the number of columns alone; the mass that top_p counts is in whole numbers, whose sums do not
// depend on any order.
#include "base/check.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/largest.cuh"

namespace tutti::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kTile = kThreads;  // columns that are summed together
constexpr int kMaxTiles = 512;   // half a million columns
constexpr int kBins = kThreads;  // for ten bits of a weight, whose 30 low ones are in use: it is 1 at most
constexpr float kOne = 1099511627776.0f;  // 2^40: a weight of 1 as a whole number

using Mass = unsigned long long;

struct Shared {
  double tiles[kMaxTiles];
  Mass bins[kBins];
  Mass warp_masses[kWarps];
  double warp_sums[kWarps];
  Mass target;
  int bin;
  double draw;
  int tile;
  int first;
  int last;
};

struct Row {
  const float* x;
  int columns;
  float most;
  float inverse;
  float least;  // weights below it are 0

  __device__ __forceinline__ float weight(int i) const {
    if (i >= columns) return 0.0f;
    const float w = __expf((x[i] - most) * inverse);
    return w >= least ? w : 0.0f;  // NaN, too
  }
};

template <typename T>
__device__ __forceinline__ T running_sum(T x) {  // over the lanes up to this one
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const T before = __shfl_up_sync(kAllLanes, x, offset);
    if (threadIdx.x % 32 >= offset) x += before;
  }
  return x;
}

// Over the threads of the block up to this one. `warps`: room that nothing else uses.
template <typename T>
__device__ __forceinline__ T running_sum_of_block(T x, T* warps) {
  T sum = running_sum(x);
  if (threadIdx.x % 32 == 31) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  for (unsigned w = 0; w < threadIdx.x / 32; ++w) sum += warps[w];
  return sum;
}

// The smallest weight of the shortest list of the heaviest that has `top_p` of the whole. Each round finds the bin of the
// next ten bits in which the sum from above passes what is still missing.
__device__ float last_weight(const Row& row, float top_p, Shared& shared) {
  uint32_t prefix = 0;
  for (int round = 0; round < 3; ++round) {
    const int shift = 20 - 10 * round;
    shared.bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < row.columns; i += kThreads) {
      const float w = row.weight(i);
      const uint32_t bits = __float_as_uint(w);
      const auto mass = static_cast<Mass>(w * kOne);
      if (mass > 0 && bits >> (shift + 10) == prefix) atomicAdd(&shared.bins[bits >> shift & (kBins - 1)], mass);
    }
    __syncthreads();
    const int bin = kBins - 1 - static_cast<int>(threadIdx.x);  // the heaviest first
    const Mass own = shared.bins[bin], sum = running_sum_of_block(own, shared.warp_masses);
    if (round == 0 && threadIdx.x == kThreads - 1) shared.target = max(Mass{1}, static_cast<Mass>(static_cast<double>(sum) * top_p));
    __syncthreads();
    const Mass target = shared.target;
    __syncthreads();
    if (sum >= target && sum - own < target) {  // one thread
      shared.bin = bin;
      shared.target = target - (sum - own);
    }
    __syncthreads();
    prefix = prefix << 10 | static_cast<uint32_t>(shared.bin);
  }
  return __uint_as_float(prefix);
}

// The column where the running sum of weights passes `draw` of the whole; the last one with a weight where rounding leads
// past the end.
__device__ int pick(const Row& row, double draw, Shared& shared) {
  const int tiles = (row.columns + kTile - 1) / kTile, lane = threadIdx.x % 32;
  for (int tile = threadIdx.x / 32; tile < tiles; tile += kWarps) {
    double sum = 0;
#pragma unroll 8
    for (int i = lane; i < kTile; i += 32) sum += row.weight(tile * kTile + i);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAllLanes, sum, offset);
    if (lane == 0) shared.tiles[tile] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double all = 0;
    for (int tile = 0; tile < tiles; ++tile) all += shared.tiles[tile];
    shared.draw = draw * all;
    shared.tile = 0;
    while (shared.tile + 1 < tiles && shared.draw >= shared.tiles[shared.tile]) shared.draw -= shared.tiles[shared.tile++];
    while (shared.tile > 0 && shared.tiles[shared.tile] <= 0) --shared.tile;
    shared.first = row.columns;
    shared.last = 0;
  }
  __syncthreads();
  const int i = shared.tile * kTile + static_cast<int>(threadIdx.x);
  const double weight = row.weight(i), running = running_sum_of_block(weight, shared.warp_sums);
  const int first = __reduce_min_sync(kAllLanes, weight > 0 && running > shared.draw ? i : row.columns);
  const int last = __reduce_max_sync(kAllLanes, weight > 0 ? i : 0);
  if (lane == 0) {
    atomicMin(&shared.first, first);
    atomicMax(&shared.last, last);
  }
  __syncthreads();
  return shared.first < row.columns ? shared.first : shared.last;
}

__global__ void __launch_bounds__(kThreads)
    draw_kernel(const float* x, int64_t stride, int columns, const LargestKey* parts, int num_parts, const ops::TokenDraw* draws, float* values,
                int32_t* indices) {
  __shared__ Shared shared;
  let_next_start();
  const ops::TokenDraw draw = draws[blockIdx.x];  // a step's input, as attention's metadata
  wait_for_previous();
  const int lane = threadIdx.x % 32;
  const LargestKey key = warp_largest(lane < num_parts ? parts[blockIdx.x * static_cast<int64_t>(num_parts) + lane] : 0);  // each warp itself
  const float most = value_of(key);
  if (threadIdx.x == 0) {
    values[blockIdx.x] = most;
    indices[blockIdx.x] = index_of(key);
  }
  if (draw.inverse_temperature == 0 || !isfinite(most)) return;  // the host looks at the value
  Row row{x + blockIdx.x * stride, columns, most, draw.inverse_temperature, draw.min_weight};
  if (draw.top_p < 1.0f) row.least = fmaxf(row.least, last_weight(row, draw.top_p, shared));
  const int token = pick(row, draw.draw, shared);
  if (threadIdx.x == 0) indices[blockIdx.x] = token;
}

}  // namespace

void draw_tokens(const Context& ctx, const Tensor& x, const Tensor& draws, const Tensor& values, const Tensor& indices) {
  if (x.numel() == 0) return;
  CHECK_LE(x.size(1), int64_t{kTile} * kMaxTiles);
  const Scratch scratch(ctx);
  const Tensor keys = largest_of_parts(ctx, scratch, x);
  launch(ctx, draw_kernel, dim3(static_cast<unsigned>(x.size(0))), dim3(kThreads), 0, x.data_as<float>(), x.stride(0), static_cast<int>(x.size(1)),
         keys.data_as<LargestKey>(), static_cast<int>(keys.size(1)), static_cast<const ops::TokenDraw*>(draws.data()), values.data_as<float>(), indices.data_as<int32_t>());
}

}  // namespace tutti::cuda
