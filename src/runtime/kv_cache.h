// The keys and values of this rank's layers: one allocation, cut into blocks that the engine hands out. Worker thread
// only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/engine_config.h"
#include "ops/attention.h"

namespace tutti {

// What one rank's cache is made of.
struct KVCacheShape {
  int num_layers = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t block_size = 16;
  DType dtype = DType::kF32;

  // Keys and values of `block_size` tokens in all layers.
  int64_t bytes_per_block() const {
    return 2 * num_layers * static_cast<int64_t>(dtype_bytes(dtype, num_kv_heads * block_size * head_dim));
  }
};

// --kv-cache-dtype; auto = F32 where activations are, else the activations' type; int8 is Q8_0: codes with a scale for 32
// elements. Throws ConfigError naming the choices.
DType kv_cache_dtype(const std::string& name, DType activations);

constexpr int64_t kDefaultCpuCacheBytes = int64_t{4} << 30;

// Blocks this rank can hold by --num-gpu-blocks-override or --kv-cache-memory-bytes, else in `available` bytes, never more
// than the scheduler's limits can use. Throws ConfigError when not even one sequence of max_model_len fits; where that shall
// fit, one block is enough.
int64_t choose_num_blocks(const KVCacheShape& shape, const CacheConfig& cache, const SchedulerConfig& scheduler,
                          int64_t available = kDefaultCpuCacheBytes);

class KVCache {
 public:
  // Throws DeviceError with the size when the memory is not there.
  KVCache(const KVCacheShape& shape, int64_t num_blocks, Device device);

  std::span<const KVLayer> layers() const { return layers_; }
  int64_t num_blocks() const { return num_blocks_; }
  const KVCacheShape& shape() const { return shape_; }
  int64_t bytes() const { return num_blocks_ * shape_.bytes_per_block(); }

 private:
  KVCacheShape shape_;
  int64_t num_blocks_;
  std::vector<KVLayer> layers_;
};

}  // namespace tutti
