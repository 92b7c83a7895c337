// What nodes compare when they join: facts, model files, configuration, addresses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "cluster/model_files.h"
#include "cluster/network.h"
#include "cluster/node_facts.h"
#include "cluster/rank_config.h"
#include "cluster/units.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

TEST(NodeFacts, TheBuildIsTheLinkersId) {
  EXPECT_THAT(build_id(), ::testing::MatchesRegex("[0-9.]+ .[0-9a-f]+."));
  EXPECT_EQ(comparable_facts(), comparable_facts());
  EXPECT_GE(summarize_node().cores, 1);
}

TEST(NodeFacts, OnlyDifferencesAreShownInTwoColumns) {
  const std::vector<Fact> head = {{"build", "0.4.0 (7c1f9e2)"}, {"protocol", "1"}};
  const std::vector<Fact> node = {{"build", "0.3.9 (b04d112)"}, {"protocol", "1"}, {"--dtype", "float16"}};
  EXPECT_TRUE(difference_table("a", head, "b", head).empty());
  const auto table = difference_table("node1 (head)", head, "node2 (this node)", node);
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[0], "               node1 (head)     node2 (this node)");
  EXPECT_EQ(table[1], "build          0.4.0 (7c1f9e2)  0.3.9 (b04d112)");
  EXPECT_EQ(table[2], "--dtype        none             float16");
}

class ModelFolder : public ::testing::Test {
 protected:
  ModelFolder() : folder(std::filesystem::path(::testing::TempDir()) / ("tutti-model-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder);
    write("model.safetensors", std::string(1 << 20, 'w'));
    write("config.json", "{}");
    write("notes.md", "not part of the model");
  }
  ~ModelFolder() override { std::filesystem::remove_all(folder); }
  void write(const std::string& name, const std::string& text) { write_file(folder / name, text); }

  std::filesystem::path folder;
};

TEST_F(ModelFolder, ListsWhatChangesAnswers) {
  const auto files = list_model_files(folder);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, "config.json");
  EXPECT_EQ(describe(files), "2, 1.0 MB");
  EXPECT_EQ(compare_model_files(files, files), std::nullopt);
  EXPECT_THROW(list_model_files(folder / "absent"), IoError);
}

TEST_F(ModelFolder, NamesMissingCutAndChangedFiles) {
  const auto head = list_model_files(folder);
  write("model.safetensors", std::string(1 << 20, 'v'));
  EXPECT_THAT(compare_model_files(head, list_model_files(folder))->second, HasSubstr("other contents"));
  write("model.safetensors", std::string(1000, 'w'));
  EXPECT_EQ(compare_model_files(head, list_model_files(folder))->second, "1,000 bytes");
  std::filesystem::remove(folder / "model.safetensors");
  EXPECT_EQ(compare_model_files(head, list_model_files(folder))->second, "1: model.safetensors is missing");
  EXPECT_THAT(compare_model_files(list_model_files(folder), head)->second, HasSubstr("is too many"));
}

TEST_F(ModelFolder, OneFileMayHaveAnotherNameElsewhere) {
  write("a.gguf", "same");
  write("b.gguf", "same");
  EXPECT_EQ(compare_model_files(list_model_files(folder / "a.gguf"), list_model_files(folder / "b.gguf")), std::nullopt);
}

TEST_F(ModelFolder, AllPartsOfAMultiPartFileCount) {
  write("m-00001-of-00002.gguf", "1");
  write("m-00002-of-00002.gguf", "2");
  EXPECT_EQ(list_model_files(folder / "m-00001-of-00002.gguf").size(), 2u);
}

TEST(RankConfigText, RoundTrips) {
  RankConfig config;
  config.rank = 1;
  config.epoch = 3;
  config.node_of_rank = {"node1#0", "node2#1", "node2#1"};
  config.secret = "s";
  config.engine.parallel.tensor_parallel_size = 3;
  config.engine.parallel.tensor_split = {2, 1, 1};
  config.engine.cache.num_blocks_override = 7;
  config.engine.scheduler.fit_max_model_len = true;
  config.engine.comm.dtype = "int8";
  config.engine.comm.tcp_streams = 4;
  config.engine.cpu_level = "vnni";
  const RankConfig copy = rank_config_from_text(to_text(config));
  EXPECT_EQ(copy.rank, 1);
  EXPECT_EQ(copy.ranks_on_node(), 2);
  EXPECT_EQ(copy.engine.parallel.tensor_split, config.engine.parallel.tensor_split);
  EXPECT_EQ(copy.engine.cache.num_blocks_override, 7);
  EXPECT_TRUE(copy.engine.scheduler.fit_max_model_len);
  EXPECT_EQ(copy.engine.comm.dtype, "int8");
  EXPECT_EQ(copy.engine.comm.tcp_streams, 4);
  EXPECT_EQ(copy.engine.cpu_level, "vnni");
  EXPECT_EQ(copy.engine.cache.kv_cache_memory_bytes, std::nullopt);
  EXPECT_EQ(to_text(copy), to_text(config));
}

TEST(RankConfigText, WhatIsMissingOrWrongIsNamed) {
  EXPECT_THROW(rank_config_from_text("{}"), IoError);
  EXPECT_THROW(rank_config_from_text("not json"), IoError);
  RankConfig config;
  config.node_of_rank = {"a#0"};
  config.rank = 1;
  EXPECT_THROW(rank_config_from_text(to_text(config)), IoError);
}

TEST(Network, TheRouteChoosesTheAddressAndAFlagForcesIt) {
  const LocalAddress loopback = local_address_towards("127.0.0.1", "");
  EXPECT_EQ(loopback.address, "127.0.0.1");
  EXPECT_EQ(loopback.interface, "lo");
  EXPECT_EQ(local_address_towards("127.0.0.1", "lo").address, "127.0.0.1");
  EXPECT_EQ(local_address_towards("127.0.0.1", "127.0.0.0/8").interface, "lo");
  EXPECT_THROW(local_address_towards("127.0.0.1", "no-such0"), ConfigError);
  EXPECT_THROW(local_address_towards("127.0.0.1", "203.0.113.0/24"), ConfigError);
  EXPECT_TRUE(is_local_address("127.0.0.1"));
  EXPECT_FALSE(is_local_address("203.0.113.1"));
}

TEST(Network, SplitsAddresses) {
  EXPECT_EQ(split_address("10.0.0.1:1234", 1), std::make_pair(std::string("10.0.0.1"), 1234));
  EXPECT_EQ(split_address("host", 29500), std::make_pair(std::string("host"), 29500));
  EXPECT_EQ(split_address("[fe80::1]:5", 1), std::make_pair(std::string("fe80::1"), 5));
  EXPECT_EQ(split_address("fe80::1", 7), std::make_pair(std::string("fe80::1"), 7));
  EXPECT_THROW(split_address("host:port", 1), ConfigError);
  EXPECT_THROW(split_address("host:99999", 1), ConfigError);
}

TEST(Units, BytesAndGroups) {
  EXPECT_EQ(format_bytes(470.2e9), "470.2 GB");
  EXPECT_EQ(format_bytes(12), "12 B");
  EXPECT_EQ(group_digits(902912), "902,912");
  EXPECT_EQ(group_digits(-1234567), "-1,234,567");
  EXPECT_EQ(group_digits(12), "12");
}

}  // namespace
}  // namespace tutti
