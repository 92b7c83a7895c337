#include "engine/kv_cache_manager.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tutti {

KVCacheManager::KVCacheManager(int64_t num_blocks, int64_t block_size, bool enable_prefix_caching,
                               KVBlockTimes* times)
    : pool_(num_blocks, times), block_size_(block_size), enable_prefix_caching_(enable_prefix_caching) {
  CHECK_GT(block_size, 0);
}

void KVCacheManager::extend_hashes(Request& request) const {
  if (!enable_prefix_caching_) return;
  const auto block_bytes = static_cast<size_t>(block_size_) * sizeof(int32_t);
  const auto full = static_cast<size_t>(request.num_tokens() / block_size_);
  std::vector<std::byte> message;
  while (request.block_hashes.size() < full) {
    const size_t index = request.block_hashes.size();
    // hash(parent hash, tokens); the salt stands in for the parent of the first block.
    const std::string& salt = request.spec.cache_salt;
    const void* parent = index == 0 ? static_cast<const void*>(salt.data()) : request.block_hashes[index - 1].data();
    const size_t parent_bytes = index == 0 ? salt.size() : sizeof(BlockHash);
    message.resize(parent_bytes + block_bytes);
    if (parent_bytes > 0) std::memcpy(message.data(), parent, parent_bytes);
    std::memcpy(message.data() + parent_bytes, request.tokens.data() + index * static_cast<size_t>(block_size_), block_bytes);
    request.block_hashes.push_back(sha256(message));
  }
}

std::vector<int32_t> KVCacheManager::find_prefix(const Request& request) const {
  std::vector<int32_t> found;
  // Logits of every prompt token are needed, so every prompt token must be computed.
  if (!enable_prefix_caching_ || request.spec.sampling.prompt_logprobs != -1) return found;
  const int64_t most = (request.num_tokens() - 1) / block_size_;
  for (int64_t i = 0; i < most; ++i) {
    const auto block = pool_.find(request.block_hashes[static_cast<size_t>(i)]);
    if (!block) break;
    found.push_back(*block);
  }
  return found;
}

std::optional<std::vector<int32_t>> KVCacheManager::allocate(Request& request, int64_t num_tokens,
                                                             const std::vector<int32_t>& prefix) {
  CHECK(prefix.empty() || request.block_ids.empty());
  const auto held = static_cast<int64_t>(request.block_ids.size() + prefix.size());
  const int64_t missing = std::max<int64_t>(0, blocks_for(num_tokens) - held);
  const auto prefix_free = std::count_if(prefix.begin(), prefix.end(), [&](int32_t b) { return pool_.is_free(b); });
  if (missing + prefix_free > pool_.num_free()) return std::nullopt;
  for (int32_t block : prefix) pool_.acquire(block);
  auto fresh = pool_.allocate(missing);
  CHECK(fresh.has_value());
  std::vector<int32_t> added = prefix;
  added.insert(added.end(), fresh->begin(), fresh->end());
  request.block_ids.insert(request.block_ids.end(), added.begin(), added.end());
  request.num_cached_blocks += static_cast<int64_t>(prefix.size());
  return added;
}

void KVCacheManager::publish(Request& request, int64_t num_computed) {
  if (!enable_prefix_caching_) return;
  extend_hashes(request);
  const int64_t full = std::min(num_computed, request.num_tokens()) / block_size_;
  for (; request.num_cached_blocks < full; ++request.num_cached_blocks) {
    const auto i = static_cast<size_t>(request.num_cached_blocks);
    pool_.publish(request.block_ids[i], request.block_hashes[i]);
  }
}

void KVCacheManager::release(Request& request) {
  std::reverse(request.block_ids.begin(), request.block_ids.end());
  pool_.release(request.block_ids);
  request.block_ids.clear();
  request.num_cached_blocks = 0;
}

}  // namespace tutti
