#include "apps/time_summary.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(TimeSummary, OneRankMovesNothing) {
  const StepTimes times{.compute = 0.9, .host = 0.01, .step = 1};
  EXPECT_EQ(describe_shares(times, 1), "compute 90%, communication 0%, scheduling 1%");
  EXPECT_EQ(describe_traffic(times), "");
}

TEST(TimeSummary, GroupsAreToldApart) {
  const StepTimes times{.compute = 1.0, .comm = 0.5, .pp_comm = 0.3, .host = 0.02, .step = 2, .bubble = 0.24,
                        .comm_bytes = 1'200'000, .pp_comm_bytes = 200'000, .slowest_rank = 1};
  EXPECT_EQ(describe_shares(times, 2), "compute 50%, communication 25% (15% between stages), scheduling 1%");
  EXPECT_EQ(describe_traffic(times), "; 1.2 MB between ranks (200.0 kB between stages), bubble 12%, slowest: rank 1");
}

TEST(TimeSummary, TensorParallelRanksHaveNoBubble) {
  const StepTimes times{.compute = 1, .comm = 1, .step = 2, .bubble = 0.1, .comm_bytes = 500, .slowest_rank = 0};
  EXPECT_EQ(describe_traffic(times), "; 500 B between ranks, slowest: rank 0");
}

}  // namespace
}  // namespace tutti
