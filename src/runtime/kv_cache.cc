#include "runtime/kv_cache.h"

#include <algorithm>

#include "base/error.h"

namespace tutti {

DType kv_cache_dtype(const std::string& name, DType activations) {
  if (name == "auto") return activations;
  if (name == "float32" || name == "float") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16" || name == "half") return DType::kF16;
  if (name == "fp8" || name == "fp8_e4m3") return DType::kF8E4M3;
  if (name == "int8") return DType::kQ8_0;
  throw ConfigError("--kv-cache-dtype " + name + " is not one of auto, float32, bfloat16, float16, fp8, int8");
}

int64_t choose_num_blocks(const KVCacheShape& shape, const CacheConfig& cache, const SchedulerConfig& scheduler,
                          int64_t available) {
  const int64_t of_one_sequence = (scheduler.max_model_len + shape.block_size - 1) / shape.block_size;
  int64_t blocks = 0;
  std::string origin;
  if (cache.num_blocks_override) {
    blocks = *cache.num_blocks_override;
    origin = "--num-gpu-blocks-override";
  } else {
    const int64_t bytes = std::max<int64_t>(0, cache.kv_cache_memory_bytes.value_or(available));
    blocks = std::min(bytes / shape.bytes_per_block(), of_one_sequence * scheduler.max_num_seqs);
    origin = cache.kv_cache_memory_bytes ? "--kv-cache-memory-bytes " + std::to_string(bytes)
                                         : "the memory that is left (" + std::to_string(bytes) + " bytes)";
  }
  const int64_t least = scheduler.fit_max_model_len ? 1 : of_one_sequence;
  if (blocks < least) {
    throw ConfigError("the KV cache is too small: one sequence of " + std::to_string(std::min(scheduler.max_model_len, least * shape.block_size)) +
                      " tokens (--max-model-len) needs " + std::to_string(least) + " blocks (" +
                      std::to_string(least * shape.bytes_per_block()) + " bytes on this rank), " + origin + " gives " +
                      std::to_string(blocks) + ": lower --max-model-len or give the cache more memory");
  }
  return blocks;
}

KVCache::KVCache(const KVCacheShape& shape, int64_t num_blocks, Device device) : shape_(shape), num_blocks_(num_blocks) {
  const size_t half = dtype_bytes(shape.dtype, num_blocks * shape.num_kv_heads * shape.block_size * shape.head_dim);
  auto buffer = Buffer::allocate(std::max<size_t>(1, 2 * half * static_cast<size_t>(shape.num_layers)), device);
  std::byte* next = buffer->data();
  const auto take = [&] {
    Tensor part = Tensor::view(next, {num_blocks, shape.num_kv_heads, shape.block_size, shape.head_dim}, shape.dtype, device, buffer);
    next += half;
    return part;
  };
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    const Tensor keys = take();
    const Tensor values = take();
    layers_.push_back({keys, values});
  }
}

}  // namespace tutti
