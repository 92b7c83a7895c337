#include "apps/start_phases.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

Json report(std::initializer_list<std::pair<const char*, double>> phases) {
  Json list = Json::array();
  for (const auto& [phase, at] : phases) list.push_back({phase, at});
  return {{"phases", list}};
}

const std::vector<std::string> kPlaces = {"node1", "node1", "node2"};

TEST(StartPhases, NamesTheRankThatTheOthersWaitFor) {
  EXPECT_EQ(awaited_rank({nullptr, nullptr, nullptr}, kPlaces), "waiting for the processes of all ranks");
  EXPECT_EQ(awaited_rank({report({{"process", 0.1}}), nullptr, nullptr}, kPlaces),
            "process: waiting for rank 1, node1 (1 of 3 ranks are done)");
  const Json ahead = report({{"process", 0.1}, {"weights", 2.0}});
  EXPECT_EQ(awaited_rank({ahead, ahead, report({{"process", 0.3}})}, kPlaces),
            "weights: waiting for rank 2, node2 (2 of 3 ranks are done)");
  EXPECT_EQ(awaited_rank({ahead, ahead, ahead}, kPlaces), "kernels or cache: all ranks are at it");
}

TEST(StartPhases, NamesTheSlowestRankOfEachPhase) {
  const std::vector<Json> reports = {report({{"process", 0.5}, {"weights", 2.0}, {"cache", 9.0}}),
                                     report({{"process", 0.1}, {"weights", 4.5}, {"cache", 4.6}}),
                                     report({{"process", 0.2}, {"weights", 1.0}})};
  EXPECT_EQ(slowest_ranks(reports, kPlaces), "process 0.5 s (rank 0, node1), weights 4.0 s (rank 1, node1)");
  EXPECT_EQ(slowest_ranks({nullptr}, {"node1"}), "");
}

}  // namespace
}  // namespace tutti
