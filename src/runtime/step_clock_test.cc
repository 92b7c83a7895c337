#include "runtime/step_clock.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kWeights = 1e9;  // 0.2 s a row at the slowest rate

double in_seconds(std::chrono::nanoseconds t) { return std::chrono::duration<double>(t).count(); }

TEST(StepClock, AStepUnlikeAnyGetsWhatASlowMachineNeeds) {
  const StepClock clock(kWeights, 10);
  EXPECT_NEAR(in_seconds(clock.timeout(1)), 10.2, 1e-6);
  EXPECT_NEAR(in_seconds(clock.timeout(100)), 30, 1e-6);
  EXPECT_EQ(clock.describe(100), "at most 20.0 s");
}

TEST(StepClock, AMeasuredStepIsLateAfterTwentyTimesItsTime) {
  StepClock clock(kWeights, 10);
  clock.record(1, milliseconds(32));
  EXPECT_EQ(clock.describe(1), "32 ms");
  EXPECT_NEAR(in_seconds(clock.timeout(1)), 5.032, 1e-6);  // no less than half of the ceiling
  clock.record(1, milliseconds(250));
  EXPECT_NEAR(in_seconds(clock.timeout(1)), 5.25, 1e-6);
  clock.record(1, seconds(30));
  EXPECT_NEAR(in_seconds(clock.timeout(1)), 40, 1e-6);  // a slow step is not an error, however slow
}

TEST(StepClock, ALoneSlowStepIsForgotten) {
  StepClock clock(kWeights, 10);
  clock.record(1, seconds(9));
  for (int i = 0; i < 100; ++i) clock.record(1, milliseconds(30));
  EXPECT_LT(in_seconds(clock.timeout(1)), 5.1);
}

TEST(StepClock, OtherNumbersOfRowsAreBoundedByTheirNeighbours) {
  StepClock clock(kWeights, 10);
  clock.record(1, milliseconds(10));
  // 64 to 127 rows take at most 128 times as long as one.
  EXPECT_EQ(clock.describe(100), "1.3 s");
  clock.record(100, milliseconds(400));
  EXPECT_EQ(clock.describe(100), "400 ms");
  EXPECT_EQ(clock.describe(300), "3.2 s");
  EXPECT_EQ(clock.describe(1), "10 ms");
  EXPECT_EQ(clock.describe(50), "640 ms");
}

}  // namespace
}  // namespace tutti
