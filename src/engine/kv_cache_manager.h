// Which blocks a request holds, and which of its prefix are already computed. Engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/block_pool.h"
#include "engine/request.h"

namespace tutti {

class KVCacheManager {
 public:
  KVCacheManager(int64_t num_blocks, int64_t block_size, bool enable_prefix_caching, KVBlockTimes* times = nullptr);

  // Computes the hashes of the request's full blocks that are not hashed yet.
  void extend_hashes(Request& request) const;

  // The cached blocks at the start of the request's tokens, at most (num_tokens - 1) / block_size of them, so that at
  // least one token is left to compute. They are not held yet.
  std::vector<int32_t> find_prefix(const Request& request) const;

  // Makes room for the request's tokens up to `num_tokens`, after taking over `prefix` (of a request that holds
  // nothing). Returns the new blocks (prefix first), or nothing when too few are free; then nothing has changed.
  std::optional<std::vector<int32_t>> allocate(Request& request, int64_t num_tokens, const std::vector<int32_t>& prefix = {});

  // Enters the full blocks among the first `num_computed` tokens, all of them known, in the prefix cache.
  void publish(Request& request, int64_t num_computed);

  // Gives all blocks back, the last ones first in line for reuse.
  void release(Request& request);

  int64_t blocks_for(int64_t num_tokens) const { return (num_tokens + block_size_ - 1) / block_size_; }
  int64_t block_size() const { return block_size_; }
  const BlockPool& pool() const { return pool_; }

 private:
  BlockPool pool_;
  int64_t block_size_;
  bool enable_prefix_caching_;
};

}  // namespace tutti
