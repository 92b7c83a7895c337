#include "comm/algorithm_table.h"

#include <gtest/gtest.h>

#include <thread>

namespace tutti {
namespace {

TEST(AlgorithmTable, ChoosesBySize) {
  AlgorithmTable table(64 << 10);
  EXPECT_EQ(table.choose(0), SumWay::kOneShot);
  EXPECT_EQ(table.choose((64 << 10) - 1), SumWay::kOneShot);
  EXPECT_EQ(table.choose(64 << 10), SumWay::kTwoShot);
  EXPECT_EQ(table.choose(size_t{1} << 40), SumWay::kTwoShot);
  EXPECT_EQ(table.text(), "one-shot, two-shot from 65536 bytes");
}

// One shot costs 20 microseconds a KiB, two shots 400 microseconds at any size.
TEST(AlgorithmTable, FindsTheCrossing) {
  SumTrial trial;
  trial.ways = {SumWay::kOneShot, SumWay::kTwoShot};
  trial.run = [](SumWay way, size_t bytes) {
    const auto time = std::chrono::microseconds(way == SumWay::kOneShot ? 20 * bytes / 1024 : 400);
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) continue;
  };
  trial.slowest = [](double seconds) { return seconds; };
  AlgorithmTable table(1);
  measure_algorithms(table, trial, 256 << 10, std::chrono::seconds(5));
  EXPECT_EQ(table.choose(4 << 10), SumWay::kOneShot);
  EXPECT_EQ(table.choose(256 << 10), SumWay::kTwoShot);
}

TEST(AlgorithmTable, SlowLinkEndsTheMeasurement) {
  int runs = 0;
  SumTrial trial;
  trial.ways = {SumWay::kOneShot, SumWay::kTwoShot};
  trial.run = [&](SumWay way, size_t) {
    ++runs;
    std::this_thread::sleep_for(std::chrono::milliseconds(way == SumWay::kOneShot ? 1 : 2));
  };
  trial.slowest = [](double seconds) { return seconds; };
  AlgorithmTable table(1);
  measure_algorithms(table, trial, size_t{1} << 30, std::chrono::milliseconds(5));
  EXPECT_EQ(runs, 12);  // one size
  EXPECT_EQ(table.choose(2048), SumWay::kOneShot);
  EXPECT_EQ(table.choose(4096), SumWay::kTwoShot);
}

}  // namespace
}  // namespace tutti
