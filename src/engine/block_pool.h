// Which KV blocks are free, which are shared, and which free ones still hold a prefix that can be found again. Knows
// nothing of requests. Engine thread only.
//
// A block is held (ref_count > 0) or in the free list. Free blocks are reused from the front, oldest first; one that
// still has a hash stays findable until it is reused.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/kv_block_times.h"
#include "engine/request.h"

namespace tutti {

class BlockPool {
 public:
  // `times`, when given, outlives the pool and hears of its blocks.
  explicit BlockPool(int64_t num_blocks, KVBlockTimes* times = nullptr);

  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t num_free() const { return num_free_; }
  int64_t num_used() const { return num_blocks() - num_free_; }

  // `count` fresh blocks with one holder each; nothing when fewer are free. Their old hashes are forgotten.
  std::optional<std::vector<int32_t>> allocate(int64_t count);
  // One holder less. The blocks that become free go to the back of the free list in the order given.
  void release(const std::vector<int32_t>& blocks);

  // The block that holds this prefix, held or free.
  std::optional<int32_t> find(const BlockHash& hash) const;
  // One holder more, for a found block.
  void acquire(int32_t block);
  bool is_free(int32_t block) const { return blocks_[block].ref_count == 0; }
  // Makes a full block findable. If another block already holds the same prefix, that one stays the findable one.
  void publish(int32_t block, const BlockHash& hash);

  // CHECKs that free + used = total, that list and counts agree, and that `holders[b]` (if given) equals each count.
  void check_invariants(const std::vector<int>* holders = nullptr) const;

 private:
  struct Block {
    int ref_count = 0;
    int32_t prev = kNone;
    int32_t next = kNone;
    std::optional<BlockHash> hash;
  };
  struct HashOfHash {
    size_t operator()(const BlockHash& h) const {
      size_t value;
      std::memcpy(&value, h.data(), sizeof value);
      return value;
    }
  };
  static constexpr int32_t kNone = -1;

  void push_back(int32_t block);
  void unlink(int32_t block);
  void forget(int32_t block);

  std::vector<Block> blocks_;
  KVBlockTimes* times_;
  int32_t head_ = kNone;
  int32_t tail_ = kNone;
  int64_t num_free_ = 0;
  std::unordered_map<BlockHash, int32_t, HashOfHash> by_hash_;
};

}  // namespace tutti
