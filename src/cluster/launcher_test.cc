#include "cluster/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace tutti {
namespace {

using Environment = std::map<std::string, std::string>;

LaunchPlan plan(const LaunchFlags& flags, int tp, const Environment& variables = {}) {
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
  const Environment variables = {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "777"}, {"WORLD_SIZE", "2"}, {"RANK", "1"}};
  const LaunchPlan p = plan({}, 2, variables);
  EXPECT_EQ(p.role, Role::kAgent);
  EXPECT_EQ(p.first_rank, 1);
  EXPECT_EQ(p.num_ranks, 1);
  EXPECT_EQ(p.master_port, 777);
  EXPECT_EQ(plan({}, 2, {{"MASTER_ADDR", "h"}, {"WORLD_SIZE", "2"}, {"RANK", "0"}}).role, Role::kHead);
  // Flags win.
  EXPECT_EQ(plan({.nnodes = 2}, 2, variables).first_rank, -1);
}

TEST(PlanLaunch, TwoOfThreeVariablesAreRefused) {
  EXPECT_THAT([] { plan({}, 1, {{"MASTER_ADDR", "h"}, {"WORLD_SIZE", "2"}}); },
              testing::ThrowsMessage<ConfigError>(
                  "MASTER_ADDR=h and WORLD_SIZE=2 are set, but not RANK: one process a rank needs MASTER_ADDR, WORLD_SIZE and RANK. "
                  "Set RANK too, or unset the others (or say --nnodes 1) to run without them"));
  EXPECT_THAT([] { plan({}, 1, {{"MASTER_ADDR", "h"}, {"RANK", "1"}}); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("but not WORLD_SIZE:")));
  EXPECT_THAT([] { plan({}, 1, {{"WORLD_SIZE", "2"}, {"RANK", "0"}}); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("but not MASTER_ADDR:")));
  EXPECT_EQ(plan({.nnodes = 1}, 1, {{"WORLD_SIZE", "2"}, {"RANK", "0"}}).num_nodes, 1);
  EXPECT_EQ(plan({}, 1, {{"WORLD_SIZE", "1"}, {"RANK", "0"}}).num_nodes, 1);
}

TEST(PlanLaunch, OneVariableAloneIsAnotherPrograms) {
  for (const char* name : {"MASTER_ADDR", "WORLD_SIZE", "RANK"}) {
    EXPECT_EQ(plan({}, 1, {{name, "2"}}).role, Role::kHead) << name;
    EXPECT_EQ(plan({}, 1, {{name, "2"}}).first_rank, -1) << name;
    const auto environment = [&](const char* asked) { return std::string(asked) == name ? "2" : ""; };
    EXPECT_EQ(ignored_variable({}, environment), std::string(name) + "=2");
    EXPECT_EQ(ignored_variable({.nnodes = 1}, environment), "");
  }
  EXPECT_EQ(ignored_variable({}, [](const char*) { return "1"; }), "");
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
