// Rotary embedding and writes to the paged cache, one by one and in one pass.
#include "ops/cuda/attention.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/dispatch.h"
#include "ops/cuda/kernels.h"

namespace tutti::cuda {
namespace {

constexpr int kThreads = 128;

// Heads of a step's rows: head h of token t starts at data + t * stride + h * head_dim.
template <typename T>
struct Heads {
  T* data = nullptr;
  int64_t stride = 0;
  int count = 0;
  __device__ T* at(int64_t token, int head, int head_dim) const { return data + token * stride + head * head_dim; }
};

template <typename T>
Heads<T> heads_of(const Tensor& x) {
  return {x.data_as<T>(), x.stride(0), static_cast<int>(x.size(1))};
}

// One head's key or value in the cache, whose units of 8 elements are dealt by `key` (attention.h).
template <typename KV>
struct CacheRow {
  KV* data = nullptr;
  int key = 0;
  __device__ KV* operator+(int dim) const { return data + ((dim / 8 ^ key) * 8 + dim % 8); }
};

// Where a token's key or value lies: [num_blocks, num_kv_heads, block_size, head_dim].
template <typename KV>
struct Cache {
  KV* keys = nullptr;
  KV* values = nullptr;
  int block_size = 0;
  bool swizzled = false;
  __device__ CacheRow<KV> row(KV* data, int64_t slot, int head, int num_kv_heads, int head_dim) const {
    const int64_t block = slot / block_size;
    const int offset = static_cast<int>(slot % block_size);
    return {data + ((block * num_kv_heads + head) * block_size + offset) * head_dim, swizzled ? offset % 8 : 0};
  }
};

struct Angles {
  const float* cos_sin = nullptr;
  const int32_t* positions = nullptr;
  int half = 0;  // pairs of a head
  bool interleaved = false;
};

// Rotates pairs [pair, pair + kVec) of a head; `copy`, unless null, gets the result too.
template <int kVec, typename T, typename KV>
__device__ void rotate(T* head, const float* cos_sin, int half, int pair, bool interleaved, CacheRow<KV> copy) {
  float cos[kVec], sin[kVec], a[kVec], b[kVec];
  load(cos_sin + pair, cos);
  load(cos_sin + half + pair, sin);
  if (interleaved) {
    float both[2 * kVec];
    load(head + 2 * pair, both);
#pragma unroll
    for (int i = 0; i < kVec; ++i) a[i] = both[2 * i], b[i] = both[2 * i + 1];
  } else {
    load(head + pair, a);
    load(head + half + pair, b);
  }
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    const float turned = a[i] * cos[i] - b[i] * sin[i];
    b[i] = b[i] * cos[i] + a[i] * sin[i];
    a[i] = turned;
  }
  const auto put = [&](auto to) {
    if (interleaved) {
      float low[kVec], high[kVec];  // of the 2 * kVec neighbours; units of 8 are stored one by one
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        (2 * i < kVec ? low[2 * i % kVec] : high[2 * i % kVec]) = a[i];
        (2 * i + 1 < kVec ? low[(2 * i + 1) % kVec] : high[(2 * i + 1) % kVec]) = b[i];
      }
      store(to + 2 * pair, low);
      store(to + (2 * pair + kVec), high);
    } else {
      store(to + pair, a);
      store(to + (half + pair), b);
    }
  };
  put(head);
  if (copy.data != nullptr) put(copy);
}

template <int kVec, typename T, typename KV>
__device__ void copy_to_cache(const T* from, KV* to) {
  float v[kVec];
  load(from, v);
  store(to, v);
}

template <typename T, int kVec>
__global__ void rope_kernel(Heads<T> x, Angles angles, int64_t items, int head_dim) {
  let_next_start();
  wait_for_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= items) return;
  const int steps = angles.half / kVec;
  const int64_t token = i / (steps * x.count);
  const int head = static_cast<int>(i / steps % x.count), pair = static_cast<int>(i % steps) * kVec;
  const float* row = angles.cos_sin + static_cast<int64_t>(angles.positions[token]) * 2 * angles.half;
  rotate<kVec>(x.at(token, head, head_dim), row, angles.half, pair, angles.interleaved, CacheRow<T>{});
}

template <typename T, typename KV, int kVec>
__global__ void write_kv_kernel(Heads<T> k, Heads<T> v, Cache<KV> cache, const int64_t* slots, int64_t items, int head_dim) {
  let_next_start();
  wait_for_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= items) return;
  const int steps = head_dim / kVec;
  const int64_t token = i / (steps * k.count), slot = slots[token];
  if (slot < 0) return;  // a padded row
  const int head = static_cast<int>(i / steps % k.count), dim = static_cast<int>(i % steps) * kVec;
  copy_to_cache<kVec>(k.at(token, head, head_dim) + dim, cache.row(cache.keys, slot, head, k.count, head_dim) + dim);
  copy_to_cache<kVec>(v.at(token, head, head_dim) + dim, cache.row(cache.values, slot, head, k.count, head_dim) + dim);
}

// The work of a token, by item: pairs of q's heads, pairs of k's, elements of k beyond the rotated ones, elements of v.
template <typename T, typename KV, int kVec>
__global__ void rope_write_kv_kernel(Heads<T> q, Heads<T> k, Heads<T> v, Angles angles, Cache<KV> cache, const int64_t* slots,
                                     int64_t num_tokens, int head_dim) {
  let_next_start();
  wait_for_previous();
  const int turning = angles.half / kVec, still = (head_dim - 2 * angles.half) / kVec, whole = head_dim / kVec;
  const int of_q = q.count * turning, of_k = k.count * turning, of_rest = k.count * still, of_v = k.count * whole;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t token = i / (of_q + of_k + of_rest + of_v);
  if (token >= num_tokens) return;
  int item = static_cast<int>(i % (of_q + of_k + of_rest + of_v));
  const float* row = angles.cos_sin + static_cast<int64_t>(angles.positions[token]) * 2 * angles.half;
  if (item < of_q) {
    rotate<kVec>(q.at(token, item / turning, head_dim), row, angles.half, item % turning * kVec, angles.interleaved,
                 CacheRow<T>{});
    return;
  }
  item -= of_q;
  const int64_t slot = slots[token];
  if (item < of_k) {
    const int head = item / turning;
    const CacheRow<KV> copy = slot < 0 ? CacheRow<KV>{} : cache.row(cache.keys, slot, head, k.count, head_dim);
    rotate<kVec>(k.at(token, head, head_dim), row, angles.half, item % turning * kVec, angles.interleaved, copy);
    return;
  }
  if (slot < 0) return;
  item -= of_k;
  if (item < of_rest) {
    const int head = item / still, dim = 2 * angles.half + item % still * kVec;
    copy_to_cache<kVec>(k.at(token, head, head_dim) + dim, cache.row(cache.keys, slot, head, k.count, head_dim) + dim);
    return;
  }
  item -= of_rest;
  const int head = item / whole, dim = item % whole * kVec;
  copy_to_cache<kVec>(v.at(token, head, head_dim) + dim, cache.row(cache.values, slot, head, k.count, head_dim) + dim);
}

Angles angles_of(const Tensor& cos_sin, const Tensor& positions, RopeLayout layout) {
  return {cos_sin.data_as<float>(), positions.data_as<int32_t>(), static_cast<int>(cos_sin.size(2)),
          layout == RopeLayout::kInterleaved};
}

// Rows whose heads start at multiples of 16 bytes, with rotated parts that do too.
bool wide_heads(const Tensor& x) { return rows_aligned(x, 16); }
bool wide_angles(const Tensor& cos_sin) { return cos_sin.size(2) % 8 == 0 && rows_aligned(cos_sin, 16); }

dim3 blocks_for(int64_t items) { return dim3(static_cast<unsigned>((items + kThreads - 1) / kThreads)); }

// f(activation type, cache type)
template <typename F>
void by_cache(DType activations, DType cache, F&& f) {
  by_activation(activations, [&](auto type) {
    if (cache == DType::kF8E4M3) return f(type, std::type_identity<__nv_fp8_e4m3>{});
    CHECK(cache == activations);
    f(type, type);
  });
}

template <typename KV>
Cache<KV> cache_of(const KVLayer& cache) {
  return {cache.keys.data_as<KV>(), cache.values.data_as<KV>(), static_cast<int>(cache.block_size()), cache_is_swizzled(cache)};
}

}  // namespace

void rope(const Context& ctx, const Tensor& x, const Tensor& positions, const Tensor& cos_sin, RopeLayout layout) {
  const Angles angles = angles_of(cos_sin, positions, layout);
  const int64_t pairs = x.size(0) * x.size(1) * angles.half;
  if (pairs == 0) return;
  const bool wide = wide_heads(x) && wide_angles(cos_sin);
  by_activation(x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const int64_t items = wide ? pairs / 8 : pairs;
    launch(ctx, wide ? rope_kernel<T, 8> : rope_kernel<T, 1>, blocks_for(items), dim3(kThreads), 0, heads_of<T>(x), angles, items,
           static_cast<int>(x.size(2)));
  });
}

void write_kv(const Context& ctx, const Tensor& k, const Tensor& v, const AttentionMetadata& meta, const KVLayer& cache) {
  if (k.numel() == 0) return;
  const bool wide = wide_heads(k) && wide_heads(v) && k.size(2) % 8 == 0;
  by_cache(k.dtype(), cache.keys.dtype(), [&](auto type, auto cache_type) {
    using T = typename decltype(type)::type;
    using KV = typename decltype(cache_type)::type;
    const int64_t items = wide ? k.numel() / 8 : k.numel();
    launch(ctx, wide ? write_kv_kernel<T, KV, 8> : write_kv_kernel<T, KV, 1>, blocks_for(items), dim3(kThreads), 0, heads_of<T>(k),
           heads_of<T>(v), cache_of<KV>(cache), meta.slot_mapping.data_as<int64_t>(), items, static_cast<int>(k.size(2)));
  });
}

void rope_write_kv(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cos_sin, RopeLayout layout,
                   const AttentionMetadata& meta, const KVLayer& cache) {
  if (q.numel() == 0) return;
  const Angles angles = angles_of(cos_sin, meta.positions, layout);
  const int head_dim = static_cast<int>(q.size(2));
  const bool wide = wide_heads(q) && wide_heads(k) && wide_heads(v) && wide_angles(cos_sin) && head_dim % 8 == 0;
  by_cache(k.dtype(), cache.keys.dtype(), [&](auto type, auto cache_type) {
    using T = typename decltype(type)::type;
    using KV = typename decltype(cache_type)::type;
    const int64_t elements = q.size(1) * angles.half + k.size(1) * (angles.half + head_dim - 2 * angles.half + head_dim);
    const int64_t items = q.size(0) * (wide ? elements / 8 : elements);
    launch(ctx, wide ? rope_write_kv_kernel<T, KV, 8> : rope_write_kv_kernel<T, KV, 1>, blocks_for(items), dim3(kThreads), 0,
           heads_of<T>(q), heads_of<T>(k), heads_of<T>(v), angles, cache_of<KV>(cache), meta.slot_mapping.data_as<int64_t>(),
           q.size(0), head_dim);
  });
}

}  // namespace tutti::cuda
