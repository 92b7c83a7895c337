#include "runtime/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tutti {
namespace {

// As a flag takes it: "360M"; a number that is not round in bytes.
std::string flag_bytes(int64_t bytes) {
  for (const auto& [shift, unit] : {std::pair{30, 'G'}, std::pair{20, 'M'}, std::pair{10, 'K'}}) {
    if (bytes > 0 && bytes % (int64_t{1} << shift) == 0) return fmt::format("{}{}", bytes >> shift, unit);
  }
  return std::to_string(bytes);
}

// The next round number that is large enough.
std::string enough_bytes(int64_t bytes) {
  const int64_t unit = bytes > int64_t{1} << 20 ? int64_t{1} << 20 : int64_t{1} << 10;
  return flag_bytes((bytes + unit - 1) / unit * unit);
}

}  // namespace

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
  const int64_t least = scheduler.fit_max_model_len ? 1 : of_one_sequence;
  std::string more = "--kv-cache-memory-bytes " + enough_bytes(least * shape.bytes_per_block());
  if (cache.num_blocks_override) {
    blocks = *cache.num_blocks_override;
    origin = fmt::format("--num-gpu-blocks-override {}", blocks);
    more = fmt::format("--num-gpu-blocks-override {}", least);
  } else {
    const int64_t bytes = std::max<int64_t>(0, cache.kv_cache_memory_bytes.value_or(available));
    blocks = std::min(bytes / shape.bytes_per_block(), of_one_sequence * scheduler.max_num_seqs);
    origin = cache.kv_cache_memory_bytes ? "--kv-cache-memory-bytes " + flag_bytes(bytes)
                                         : "the memory for it (" + flag_bytes(bytes >> 20 << 20) + " of a rank)";
  }
  if (blocks < least) {
    const std::string shorter = blocks > 0 ? fmt::format(", or --max-model-len {}", blocks * shape.block_size) : "";
    throw ConfigError(fmt::format("the KV cache is too small: one sequence of {} tokens (--max-model-len) needs {} blocks, {} has room for {}. "
                                  "Say {}{}",
                                  std::min(scheduler.max_model_len, least * shape.block_size), least, origin, blocks, more, shorter));
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
