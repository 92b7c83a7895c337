#include "engine/block_pool.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/kv_cache_manager.h"

namespace tutti {
namespace {

BlockHash hash_of(int n) {
  BlockHash h{};
  std::memcpy(h.data(), &n, sizeof n);
  return h;
}

TEST(BlockPool, GivesOldestFreeBlockFirstAndForgetsItsHash) {
  BlockPool pool(3);
  auto a = *pool.allocate(2);
  EXPECT_EQ(a, (std::vector<int32_t>{0, 1}));
  pool.publish(0, hash_of(7));
  pool.release({1, 0});
  EXPECT_EQ(pool.find(hash_of(7)), 0);
  EXPECT_EQ(*pool.allocate(2), (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(pool.find(hash_of(7)), 0);  // still there: it is the youngest free one
  EXPECT_EQ(*pool.allocate(1), (std::vector<int32_t>{0}));
  EXPECT_FALSE(pool.find(hash_of(7)));
  EXPECT_FALSE(pool.allocate(1));
  pool.check_invariants();
}

TEST(BlockPool, SharedBlockIsFreedByItsLastHolder) {
  BlockPool pool(2);
  const auto a = *pool.allocate(1);
  pool.acquire(a[0]);
  pool.release(a);
  EXPECT_EQ(pool.num_free(), 1);
  pool.release(a);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(KVCacheManager, PrefixHitLeavesOneTokenToCompute) {
  KVCacheManager kv(8, 4, true);
  Request first;
  first.tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  ASSERT_TRUE(kv.allocate(first, 8));
  kv.publish(first, 8);
  Request second;
  second.tokens = first.tokens;
  kv.extend_hashes(second);
  EXPECT_EQ(kv.find_prefix(second), (std::vector<int32_t>{first.block_ids[0]}));
  second.tokens.push_back(9);
  kv.extend_hashes(second);
  EXPECT_EQ(kv.find_prefix(second), first.block_ids);
}

TEST(KVCacheManager, SaltAndEarlierTokensSeparatePrefixes) {
  KVCacheManager kv(8, 2, true);
  Request first;
  first.tokens = {1, 2, 3, 4};
  ASSERT_TRUE(kv.allocate(first, 4));
  kv.publish(first, 4);
  Request salted;
  salted.spec.cache_salt = "x";
  salted.tokens = {1, 2, 3, 4, 5};
  kv.extend_hashes(salted);
  EXPECT_TRUE(kv.find_prefix(salted).empty());
  Request other;  // the same second block behind another first one
  other.tokens = {9, 2, 3, 4, 5};
  kv.extend_hashes(other);
  EXPECT_TRUE(kv.find_prefix(other).empty());
}

// Allocations, growth, prefix hits, publications and releases at random: counts and holders agree after each.
TEST(KVCacheManager, HundredThousandRandomOperationsKeepTheInvariants) {
  constexpr int kBlocks = 64;
  std::mt19937 rng(20240607);
  KVCacheManager kv(kBlocks, 4, true);
  std::vector<Request> live;
  const auto draw = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  for (int op = 0; op < 100000; ++op) {
    const int what = draw(10);
    if (what < 4 || live.empty()) {
      Request r;
      const int length = 1 + draw(40);
      const int kind = draw(3);  // few distinct streams, so that prefixes repeat
      for (int i = 0; i < length; ++i) r.tokens.push_back(kind * 100 + i);
      kv.extend_hashes(r);
      const auto prefix = kv.find_prefix(r);
      const int64_t free_before = kv.pool().num_free();
      if (kv.allocate(r, r.num_tokens(), prefix)) {
        live.push_back(std::move(r));
      } else {
        ASSERT_EQ(kv.pool().num_free(), free_before);
      }
    } else if (what < 7) {
      Request& r = live[static_cast<size_t>(draw(static_cast<int>(live.size())))];
      r.tokens.push_back(draw(5));
      if (!kv.allocate(r, r.num_tokens())) r.tokens.pop_back();
      kv.publish(r, r.num_tokens());
    } else {
      const auto i = static_cast<size_t>(draw(static_cast<int>(live.size())));
      kv.release(live[i]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
    }
    std::vector<int> holders(kBlocks, 0);
    for (const Request& r : live) {
      for (int32_t b : r.block_ids) ++holders[static_cast<size_t>(b)];
    }
    kv.pool().check_invariants(&holders);
  }
}

}  // namespace
}  // namespace tutti
