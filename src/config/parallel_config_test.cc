#include "config/parallel_config.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

TEST(ParallelConfig, CoordinatesAndRankAreInverse) {
  ParallelConfig c{.tensor_parallel_size = 3, .pipeline_parallel_size = 2, .data_parallel_size = 2};
  for (int r = 0; r < c.world_size(); ++r) EXPECT_EQ(c.rank(c.coordinates(r)), r);
  EXPECT_EQ(c.coordinates(4), (RankCoordinates{1, 1, 0}));
}

TEST(ParallelConfig, Groups) {
  ParallelConfig c{.tensor_parallel_size = 2, .pipeline_parallel_size = 2};
  EXPECT_EQ(c.tp_group(3), (std::vector<int>{2, 3}));
  EXPECT_EQ(c.pp_group(3), (std::vector<int>{1, 3}));
}

TEST(ParallelConfig, DescribesItself) {
  EXPECT_EQ((ParallelConfig{.tensor_parallel_size = 8, .data_parallel_size = 2}.describe()), "2 x TP=8");
  EXPECT_EQ((ParallelConfig{.tensor_parallel_size = 8, .pipeline_parallel_size = 2}.describe()), "TP=8 PP=2");
}

TEST(ParallelConfig, RefusesBadNumbersByFlagName) {
  ParallelConfig c{.tensor_parallel_size = 2, .tensor_split = {1, 1, 1}};
  try {
    c.validate();
    FAIL() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("--tensor-split has 3 numbers"), std::string::npos);
  }
  EXPECT_THROW(ParallelConfig{.tensor_parallel_size = 0}.validate(), ConfigError);
}

TEST(DealUnits, EqualSharesDifferByAtMostOne) {
  EXPECT_EQ(deal_units(9, 2), (std::vector<int>{0, 5, 9}));
  EXPECT_EQ(deal_units(9, 3), (std::vector<int>{0, 3, 6, 9}));
  for (int total = 0; total < 40; ++total) {
    for (int parts = 1; parts < 9; ++parts) {
      const auto offsets = deal_units(total, parts);
      EXPECT_EQ(offsets.back(), total);
      for (int p = 0; p < parts; ++p) {
        EXPECT_GE(offsets[p + 1] - offsets[p], total / parts);
        EXPECT_LE(offsets[p + 1] - offsets[p], (total + parts - 1) / parts);
      }
    }
  }
}

TEST(DealUnits, ByShares) { EXPECT_EQ(deal_units(9, 2, {2, 1}), (std::vector<int>{0, 6, 9})); }

}  // namespace
}  // namespace tutti
