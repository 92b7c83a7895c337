#include "models/stage_partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

ModelConfig model(int layers, int64_t vocab) {
  ModelConfig config;
  config.num_layers = layers;
  config.hidden_size = 64;
  config.intermediate_size = 256;
  config.num_heads = 4;
  config.num_kv_heads = 4;
  config.head_dim = 16;
  config.vocab_size = vocab;
  return config;
}

ParallelConfig stages(int pp, std::vector<int> counts = {}) {
  ParallelConfig parallel;
  parallel.pipeline_parallel_size = pp;
  parallel.pipeline_layer_partition = std::move(counts);
  return parallel;
}

std::vector<int> counts(const ModelConfig& config, const ParallelConfig& parallel) {
  std::vector<int> result;
  for (const LayerRange& range : partition_layers(config, parallel)) result.push_back(range.count());
  return result;
}

using ::testing::ElementsAre;

TEST(StagePartition, EqualLayersWithoutAHead) {
  EXPECT_THAT(counts(model(8, 1), stages(1)), ElementsAre(8));
  EXPECT_THAT(counts(model(8, 1), stages(4)), ElementsAre(2, 2, 2, 2));
}

TEST(StagePartition, TheHeadsStageGetsFewerLayers) {
  // A layer reads 65,536 weights; a head of 2,048 tokens reads as much as two layers.
  EXPECT_EQ(stage_costs(model(8, 2048)).layer, 65536.0);
  EXPECT_THAT(counts(model(8, 2048), stages(2)), ElementsAre(5, 3));
  EXPECT_THAT(counts(model(8, 1 << 20), stages(2)), ElementsAre(7, 1));
}

// Another layer for the first stage would gain nothing where every row meets the head, and hold up prompts.
TEST(StagePartition, PromptsDoNotMeetTheHead) {
  EXPECT_THAT(counts(model(8, 1100), stages(2)), ElementsAre(4, 4));  // the head is as much as 1.07 layers
  EXPECT_THAT(counts(model(8, 900), stages(2)), ElementsAre(4, 4));
}

TEST(StagePartition, RangesAreConsecutive) {
  for (int pp = 1; pp <= 7; ++pp) {
    int next = 0;
    for (const LayerRange& range : partition_layers(model(7, 512), stages(pp))) {
      EXPECT_EQ(range.begin, next);
      EXPECT_GT(range.count(), 0);
      next = range.end;
    }
    EXPECT_EQ(next, 7);
  }
}

TEST(StagePartition, GivenNumbersGoFirst) {
  EXPECT_THAT(counts(model(8, 1), stages(3, {5, 2, 1})), ElementsAre(5, 2, 1));
  EXPECT_THAT([] { partition_layers(model(8, 1), stages(2, {5, 2})); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("adds up to 7 layers, but the model has 8")));
  EXPECT_THAT([] { partition_layers(model(2, 1), stages(3)); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("the model has 2 layers")));
}

}  // namespace
}  // namespace tutti
