#include "engine/kv_block_times.h"

#include <gtest/gtest.h>

#include "engine/block_pool.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

int64_t count_of(const TimeHistogram& h) {
  int64_t sum = 0;
  for (const int64_t n : h.counts) sum += n;
  return sum;
}

TEST(KVBlockTimes, OneLife) {
  KVBlockTimes times(1.0);
  const Clock::time_point begin{};
  times.allocated_at(3, begin);
  times.reused_at(3, begin + 2s);
  times.reused_at(3, begin + 2500ms);
  times.reused_at(4, begin + 3s);  // nobody follows it
  times.allocated_at(3, begin + 12500ms);
  const KVBlockHistograms& h = times.histograms();
  EXPECT_DOUBLE_EQ(h.lifetime.sum, 12.5);
  EXPECT_DOUBLE_EQ(h.idle_before_evict.sum, 10.0);
  EXPECT_DOUBLE_EQ(h.reuse_gap.sum, 2.5);
  EXPECT_EQ(h.lifetime.counts[13], 1);          // 10 < 12.5 <= 20
  EXPECT_EQ(h.idle_before_evict.counts[12], 1);  // the bound itself is in
  EXPECT_EQ(count_of(h.reuse_gap), 2);
}

TEST(KVBlockTimes, FollowsItsShare) {
  for (const double share : {0.0, 0.01, 0.25, 1.0}) {
    KVBlockTimes times(share);
    for (int round = 0; round < 2; ++round) {
      for (int32_t b = 0; b < 1000; ++b) times.allocated_at(b, Clock::time_point{} + round * 1s);
    }
    EXPECT_NEAR(static_cast<double>(count_of(times.histograms().lifetime)), 1000 * share, 1) << share;
  }
}

TEST(KVBlockTimes, ThePoolTells) {
  KVBlockTimes times(1.0);
  BlockPool pool(2, &times);
  const auto both = *pool.allocate(2);
  BlockHash hash{};
  pool.publish(both[0], hash);
  pool.release(both);
  pool.acquire(*pool.find(hash));
  EXPECT_EQ(count_of(times.histograms().reuse_gap), 1);
  EXPECT_EQ(count_of(times.histograms().lifetime), 0);
  pool.release({both[0]});
  pool.allocate(2);
  EXPECT_EQ(count_of(times.histograms().lifetime), 2);
  EXPECT_EQ(count_of(times.histograms().idle_before_evict), 2);
}

}  // namespace
}  // namespace tutti
