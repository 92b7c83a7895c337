#include "apps/worker_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using ::testing::HasSubstr;

TEST(WorkerHealth, MetricsNameTheRanks) {
  const NodeReport report{.joined = true, .serves = false, .ranks = {{.rank = 3, .state = 'S', .steps = 7}, {.rank = 4, .state = 'T', .steps = 6}}};
  const std::string text = node_metrics(report);
  EXPECT_THAT(text, HasSubstr("tutti:worker_joined 1\n"));
  EXPECT_THAT(text, HasSubstr("tutti:worker_ready 0\n"));
  EXPECT_THAT(text, HasSubstr("tutti:worker_rank_up{rank=\"3\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("tutti:worker_rank_up{rank=\"4\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("tutti:worker_rank_steps_total{rank=\"3\"} 7\n"));
}

}  // namespace
}  // namespace tutti
