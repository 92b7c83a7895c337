#include "engine/block_pool.h"

#include "base/check.h"

namespace tutti {

BlockPool::BlockPool(int64_t num_blocks, KVBlockTimes* times) : blocks_(static_cast<size_t>(num_blocks)), times_(times) {
  for (int32_t b = 0; b < num_blocks; ++b) push_back(b);
}

void BlockPool::push_back(int32_t block) {
  Block& b = blocks_[block];
  b.prev = tail_;
  b.next = kNone;
  (tail_ == kNone ? head_ : blocks_[tail_].next) = block;
  tail_ = block;
  ++num_free_;
}

void BlockPool::unlink(int32_t block) {
  Block& b = blocks_[block];
  (b.prev == kNone ? head_ : blocks_[b.prev].next) = b.next;
  (b.next == kNone ? tail_ : blocks_[b.next].prev) = b.prev;
  b.prev = b.next = kNone;
  --num_free_;
}

void BlockPool::forget(int32_t block) {
  Block& b = blocks_[block];
  if (!b.hash) return;
  by_hash_.erase(*b.hash);
  b.hash.reset();
}

std::optional<std::vector<int32_t>> BlockPool::allocate(int64_t count) {
  if (count > num_free_) return std::nullopt;
  std::vector<int32_t> taken;
  taken.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int32_t block = head_;
    unlink(block);
    forget(block);
    blocks_[block].ref_count = 1;
    if (times_ != nullptr) times_->allocated(block);
    taken.push_back(block);
  }
  return taken;
}

void BlockPool::release(const std::vector<int32_t>& blocks) {
  for (int32_t block : blocks) {
    Block& b = blocks_[block];
    CHECK_GT(b.ref_count, 0);
    if (--b.ref_count == 0) push_back(block);
  }
}

std::optional<int32_t> BlockPool::find(const BlockHash& hash) const {
  const auto it = by_hash_.find(hash);
  if (it == by_hash_.end()) return std::nullopt;
  return it->second;
}

void BlockPool::acquire(int32_t block) {
  if (blocks_[block].ref_count++ == 0) unlink(block);
  if (times_ != nullptr) times_->reused(block);
}

void BlockPool::publish(int32_t block, const BlockHash& hash) {
  Block& b = blocks_[block];
  CHECK_GT(b.ref_count, 0);
  if (b.hash) return;
  if (by_hash_.emplace(hash, block).second) b.hash = hash;
}

void BlockPool::check_invariants(const std::vector<int>* holders) const {
  int64_t listed = 0;
  for (int32_t b = head_; b != kNone; b = blocks_[b].next) {
    CHECK_EQ(blocks_[b].ref_count, 0);
    ++listed;
  }
  CHECK_EQ(listed, num_free_);
  int64_t used = 0;
  size_t hashed = 0;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    if (blocks_[b].ref_count > 0) ++used;
    if (holders != nullptr) CHECK_EQ(blocks_[b].ref_count, (*holders)[b]);
    if (blocks_[b].hash) {
      ++hashed;
      CHECK_EQ(by_hash_.at(*blocks_[b].hash), static_cast<int32_t>(b));
    }
  }
  CHECK_EQ(used + num_free_, num_blocks());
  CHECK_EQ(hashed, by_hash_.size());
}

}  // namespace tutti
