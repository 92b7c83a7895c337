#include "nn/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

ModelConfig model(int heads, int kv_heads, int head_dim = 64, int64_t ffn = 1536, int64_t vocab = 49152) {
  ModelConfig config;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.hidden_size = int64_t{heads} * head_dim;
  config.intermediate_size = ffn;
  config.vocab_size = vocab;
  return config;
}

ParallelConfig ranks(int tp, std::vector<int> split = {}) {
  ParallelConfig parallel;
  parallel.tensor_parallel_size = tp;
  parallel.tensor_split = std::move(split);
  return parallel;
}

// The parts of all ranks lie behind each other and cover [0, total).
void expect_covers(const ModelConfig& config, const ParallelConfig& parallel, Range TensorPartition::*part, int64_t total,
                   QuantBlocks blocks = {}) {
  int64_t end = 0;
  for (int r = 0; r < parallel.tensor_parallel_size; ++r) {
    const Range range = partition_tensors(config, parallel, r, blocks).*part;
    EXPECT_EQ(range.begin, end) << "rank " << r;
    EXPECT_GT(range.count, 0) << "rank " << r;
    end = range.end();
  }
  EXPECT_EQ(end, total);
}

TEST(Partition, NineHeadsOnTwoRanks) {
  const ModelConfig smollm = model(9, 3);
  const TensorPartition first = partition_tensors(smollm, ranks(2), 0);
  EXPECT_EQ(first.heads, (Range{0, 6}));
  EXPECT_EQ(first.kv_heads, (Range{0, 2}));
  const TensorPartition second = partition_tensors(smollm, ranks(2), 1);
  EXPECT_EQ(second.heads, (Range{6, 3}));
  EXPECT_EQ(second.kv_heads, (Range{2, 1}));
}

TEST(Partition, EveryRankCountCoversEverything) {
  for (const auto& [heads, kv_heads] : {std::pair{9, 3}, {32, 8}, {14, 2}, {16, 16}, {8, 1}}) {
    const ModelConfig config = model(heads, kv_heads);
    for (int tp = 1; tp <= heads; ++tp) {
      SCOPED_TRACE(testing::Message() << heads << " heads, " << kv_heads << " KV heads, TP=" << tp);
      expect_covers(config, ranks(tp), &TensorPartition::heads, heads);
      expect_covers(config, ranks(tp), &TensorPartition::ffn, config.intermediate_size);
      expect_covers(config, ranks(tp), &TensorPartition::vocab, config.vocab_size);
    }
  }
}

TEST(Partition, KvHeadsAreSharedWhenRanksAreMore) {
  for (int tp = 4; tp <= 9; ++tp) {
    for (int r = 0; r < tp; ++r) {
      const TensorPartition cut = partition_tensors(model(9, 3), ranks(tp), r);
      EXPECT_EQ(cut.kv_heads.count, 1);
      EXPECT_EQ(cut.heads.begin / 3, cut.kv_heads.begin);
      EXPECT_EQ((cut.heads.end() - 1) / 3, cut.kv_heads.begin);
    }
  }
}

TEST(Partition, QuantisedInputsAreCutAtBlocks) {
  const QuantBlocks blocks{256, 256};
  const ModelConfig config = model(32, 8, 64, 5632);  // 22 blocks of 256 columns
  for (int tp : {2, 3, 4, 8}) {
    expect_covers(config, ranks(tp), &TensorPartition::heads, 32, blocks);
    expect_covers(config, ranks(tp), &TensorPartition::ffn, 5632, blocks);
    for (int r = 0; r < tp; ++r) {
      const TensorPartition cut = partition_tensors(config, ranks(tp), r, blocks, OutputCut::kColumns);
      EXPECT_EQ(cut.heads.begin * 64 % 256, 0);
      EXPECT_EQ(cut.ffn.begin % 256, 0);
    }
  }
}

// A cut by rows gathers activations, which share a scale in blocks of 32 whatever the weight's type.
TEST(Partition, GatheredInputsAreCutAtActivationBlocks) {
  for (int r = 0; r < 3; ++r) {
    const TensorPartition cut = partition_tensors(model(9, 3, 64, 512), ranks(3), r, {256, 256});
    EXPECT_EQ(cut.ffn.begin % 32, 0);
    EXPECT_EQ(cut.all_ffn[static_cast<size_t>(r)], cut.ffn);
    EXPECT_EQ(cut.all_heads[static_cast<size_t>(r)], cut.heads);
    EXPECT_EQ(cut.all_hidden.back().end(), 576);
  }
}

TEST(Partition, SharesAreHonoured) {
  const ModelConfig config = model(32, 8);
  const TensorPartition large = partition_tensors(config, ranks(2, {3, 1}), 0);
  EXPECT_EQ(large.kv_heads.count, 6);
  EXPECT_EQ(large.ffn.count, 1152);
  EXPECT_EQ(large.vocab.count, 36864);
  // However small a share, a rank has something to do.
  expect_covers(config, ranks(3, {100, 1, 1}), &TensorPartition::kv_heads, 8);
  expect_covers(config, ranks(3, {1, 1, 100}), &TensorPartition::kv_heads, 8);
}

TEST(Partition, TooManyRanksSayHowManyWork) {
  EXPECT_THAT([] { partition_tensors(model(9, 3), ranks(10), 0); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("Use 9 or less")));
  EXPECT_THAT([] { partition_tensors(model(32, 8, 64, 512), ranks(4), 0, {1, 256}, OutputCut::kColumns); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("512 columns in blocks of 256")));
}

TEST(Partition, SmallVocabularies) {
  expect_covers(model(8, 8, 64, 64, 130), ranks(4), &TensorPartition::vocab, 130);
  expect_covers(model(8, 8, 64, 64, 5), ranks(5), &TensorPartition::vocab, 5);
}

}  // namespace
}  // namespace tutti
