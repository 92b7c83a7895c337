#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

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

}  // namespace
}  // namespace tutti
