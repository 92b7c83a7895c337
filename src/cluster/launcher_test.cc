#include "cluster/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace tutti {
namespace {

using Variables = std::map<std::string, std::string>;

LaunchPlan plan(const LaunchFlags& flags, int tp, const Variables& variables = {}) {
  ParallelConfig parallel;
  parallel.tensor_parallel_size = tp;
  return plan_launch(flags, parallel, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

TEST(PlanLaunch, OneNodeByDefault) {
  const LaunchPlan p = plan({}, 2);
  EXPECT_EQ(p.role, Role::kHead);
  EXPECT_EQ(p.num_nodes, 1);
  EXPECT_EQ(p.master_port, 29500);
}

TEST(PlanLaunch, TheSameCommandOnEveryNode) {
  LaunchFlags flags{.nnodes = 2, .node_rank = 0, .master_addr = "10.0.0.1", .master_port = 1234};
  EXPECT_EQ(plan(flags, 2).role, Role::kHead);
  flags.node_rank = 1;
  flags.headless = true;
  const LaunchPlan p = plan(flags, 2);
  EXPECT_EQ(p.role, Role::kAgent);
  EXPECT_EQ(p.node_rank, 1);
  EXPECT_EQ(p.master_addr, "10.0.0.1");
  EXPECT_EQ(p.master_port, 1234);
}

TEST(PlanLaunch, AsManyNodesAsHaveTheGpus) {
  EXPECT_EQ(plan({.gpus = 8}, 16).num_nodes, 2);
  EXPECT_EQ(plan({.gpus = 8}, 17).num_nodes, 3);
  EXPECT_EQ(plan({.gpus = 8}, 8).num_nodes, 1);
  EXPECT_EQ(plan({.gpus = 0}, 16).num_nodes, 1);                 // on the CPU ranks share the cores
  EXPECT_EQ(plan({.nnodes = 1, .gpus = 1}, 2).num_nodes, 1);     // several ranks on a GPU, if that is what is asked for
  EXPECT_EQ(plan({.node_rank = 1, .master_addr = "h", .gpus = 8}, 16).role, Role::kAgent);
}

TEST(PlanLaunch, OneProcessARankFromTheEnvironment) {
  const Variables variables = {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "777"}, {"WORLD_SIZE", "2"}, {"RANK", "1"}};
  const LaunchPlan p = plan({}, 2, variables);
  EXPECT_EQ(p.role, Role::kAgent);
  EXPECT_EQ(p.first_rank, 1);
  EXPECT_EQ(p.num_ranks, 1);
  EXPECT_EQ(p.master_port, 777);
  EXPECT_EQ(plan({}, 2, {{"MASTER_ADDR", "h"}, {"WORLD_SIZE", "2"}, {"RANK", "0"}}).role, Role::kHead);
  // Flags win, and half an environment is none.
  EXPECT_EQ(plan({.nnodes = 2}, 2, variables).first_rank, -1);
  EXPECT_EQ(plan({}, 2, {{"MASTER_ADDR", "h"}}).first_rank, -1);
}

TEST(PlanLaunch, TheEnvironmentSaysHowManyRanksThereAre) {
  const auto environment = [](const char* name) { return std::string(name) == "WORLD_SIZE" ? "4" : "1"; };
  EXPECT_EQ(world_size_of_environment({}, environment), 4);
  EXPECT_EQ(world_size_of_environment({.nnodes = 2}, environment), std::nullopt);
  EXPECT_EQ(world_size_of_environment({}, [](const char*) { return std::string(); }), std::nullopt);
}

TEST(PlanLaunch, WhatDoesNotFitIsRefused) {
  EXPECT_THROW(plan({}, 4, {{"MASTER_ADDR", "h"}, {"WORLD_SIZE", "2"}, {"RANK", "0"}}), ConfigError);
  EXPECT_THROW(plan({}, 2, {{"MASTER_ADDR", "h"}, {"WORLD_SIZE", "2"}, {"RANK", "2"}}), ConfigError);
  EXPECT_THROW(plan({}, 2, {{"MASTER_ADDR", "h"}, {"WORLD_SIZE", "two"}, {"RANK", "0"}}), ConfigError);
  EXPECT_THROW(plan({.nnodes = 2, .node_rank = 2}, 2), ConfigError);
  EXPECT_THAT([] { plan({.node_rank = 1, .master_addr = "h"}, 2); },
              testing::ThrowsMessage<ConfigError>("--node-rank 1 needs --nnodes: how many nodes are there?"));
  EXPECT_THROW(plan({.nnodes = 0}, 2), ConfigError);
  EXPECT_THROW(plan({.nnodes = 3}, 2), ConfigError);
  EXPECT_THROW(plan({.nnodes = 2, .node_rank = 1}, 2), ConfigError);  // where is the head?
  EXPECT_THROW(plan({.nnodes = 2, .headless = true}, 2), ConfigError);
}

}  // namespace
}  // namespace tutti
