#include "comm/algorithm_table.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

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

// A link whose exchanges take given times, on a clock of its own: no busy machine changes the outcome.
struct SimulatedLink {
  explicit SimulatedLink(std::function<double(SumWay way, size_t bytes)> cost) {
    trial.ways = {SumWay::kOneShot, SumWay::kTwoShot};
    trial.run = [this, cost = std::move(cost)](SumWay way, size_t bytes) {
      ++runs;
      of_way = cost(way, bytes);
      total += of_way;
    };
    // Asked for the time of the exchanges just run, and after each size for all time spent.
    trial.slowest = [this](double) {
      const double of_runs = std::exchange(of_way, 0.0);
      return of_runs > 0 ? of_runs : total;
    };
  }

  SumTrial trial;
  int runs = 0;
  double of_way = 0, total = 0;  // seconds
};

TEST(AlgorithmTable, FindsTheCrossing) {
  SimulatedLink link([](SumWay way, size_t bytes) { return way == SumWay::kOneShot ? 20e-6 * static_cast<double>(bytes) / 1024 : 400e-6; });
  AlgorithmTable table(1);
  measure_algorithms(table, link.trial, 256 << 10, std::chrono::seconds(5));
  EXPECT_EQ(table.choose(4 << 10), SumWay::kOneShot);
  EXPECT_EQ(table.choose(256 << 10), SumWay::kTwoShot);
}

TEST(AlgorithmTable, SlowLinkEndsTheMeasurement) {
  SimulatedLink link([](SumWay way, size_t) { return way == SumWay::kOneShot ? 1e-3 : 2e-3; });
  AlgorithmTable table(1);
  measure_algorithms(table, link.trial, size_t{1} << 30, std::chrono::milliseconds(5));
  EXPECT_EQ(link.runs, 12);  // one size
  EXPECT_EQ(table.choose(2048), SumWay::kOneShot);
  EXPECT_EQ(table.choose(4096), SumWay::kTwoShot);
}

// What moves without adding has no two shots.
TEST(AlgorithmTable, AfterTheMeasurementOnlyWaysThatThereAreAreTaken) {
  SimulatedLink link([](SumWay way, size_t) { return way == SumWay::kOneShot ? 1e-3 : 2e-3; });
  link.trial.ways = {SumWay::kOneShot, SumWay::kNccl};
  AlgorithmTable table(1);
  measure_algorithms(table, link.trial, size_t{1} << 30, std::chrono::milliseconds(5));
  EXPECT_EQ(table.choose(2048), SumWay::kOneShot);
  EXPECT_EQ(table.choose(size_t{64} << 20), SumWay::kNccl);
}

}  // namespace
}  // namespace tutti
