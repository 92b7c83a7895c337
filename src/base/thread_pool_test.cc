#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <sched.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "base/cpu_cores.h"

namespace tutti {
namespace {

TEST(ThreadPool, RunsOnEveryThreadOnce) {
  for (int threads = 1; threads <= 4; ++threads) {
    for (int spin_us : {0, 50}) {
      ThreadPool pool(threads, spin_us);
      std::vector<int> counts(static_cast<size_t>(threads), 0);
      for (int round = 0; round < 200; ++round) {
        pool.run([&](int thread) { ++counts[static_cast<size_t>(thread)]; });
      }
      for (int count : counts) EXPECT_EQ(count, 200);
    }
  }
}

TEST(ThreadPool, WhatAJobWroteIsSeenAfterIt) {
  ThreadPool pool(3);
  std::vector<int64_t> values(1000, 0);
  for (int round = 1; round <= 100; ++round) {
    pool.run([&](int thread) {
      for (size_t i = static_cast<size_t>(thread); i < values.size(); i += 3) values[i] += round;
    });
  }
  for (int64_t v : values) ASSERT_EQ(v, 5050);
}

TEST(ThreadPool, ParallelForCoversTheRange) {
  ThreadPool pool(3);
  for (int64_t count : {0, 1, 7, 1000}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
    pool.parallel_for(count, 13, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    for (auto& s : seen) EXPECT_EQ(s.load(), 1);
  }
}

TEST(ThreadPool, SleepingThreadsWakeUp) {
  ThreadPool pool(2, /*spin_us=*/0);
  std::atomic<int> runs{0};
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    pool.run([&](int) { ++runs; });
  }
  EXPECT_EQ(runs, 10);
}

TEST(CpuCores, Lists) {
  EXPECT_EQ(parse_cpu_list("0-2,8,10-11"), (std::vector<int>{0, 1, 2, 8, 10, 11}));
  EXPECT_EQ(parse_cpu_list("3"), std::vector<int>{3});
  EXPECT_TRUE(parse_cpu_list("").empty());
  EXPECT_EQ(parse_cpu_list("x,1-,5,-2,0-99999999"), std::vector<int>{5});
}

TEST(CpuCores, GroupsAreDisjointAndUsable) {
  const std::vector<int> all = usable_processors_by_node();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(std::set<int>(all.begin(), all.end()).size(), all.size());
  std::vector<int> dealt;
  for (int i = 0; i < static_cast<int>(all.size()); ++i) {
    ASSERT_EQ(processors_of_group(i, 1).size(), 1u);
    dealt.push_back(processors_of_group(i, 1)[0]);
  }
  EXPECT_EQ(dealt, all);
  EXPECT_TRUE(processors_of_group(static_cast<int>(all.size()), 1).empty());
  EXPECT_TRUE(processors_of_group(0, static_cast<int>(all.size()) + 1).empty());
}

TEST(CpuCores, PinnedThreadsRunWhereTheyWereToldTo) {
  const int last = usable_processors_by_node().back();
  std::thread([&] {  // this thread's own affinity stays
    ThreadPool pool(2, 0);
    pool.run([&](int) { pin_thread(last); });
    pool.run([&](int) { EXPECT_EQ(::sched_getcpu(), last); });
  }).join();
}

}  // namespace
}  // namespace tutti
