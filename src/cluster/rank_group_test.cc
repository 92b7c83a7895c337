#include "cluster/rank_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "cluster/cluster_executor.h"
#include "protocol/wire.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

Deadline soon() { return Deadline::after(seconds(5)); }

// Two ranks whose messages are kept.
class RankGroupTest : public ::testing::Test {
 protected:
  RankGroupTest() : ranks(std::make_shared<RankGroup>(2)), group(*ranks), executor(ranks, {.num_kv_blocks = 10}) {
    for (int rank = 0; rank < 2; ++rank) {
      group.attach(rank, {rank == 0 ? "node1" : "node2", 4710 + rank}, [this, rank](FrameType type, std::string_view payload) {
        if (broken == rank) throw CommError("broken pipe");
        sent.emplace_back(rank, Frame{type, std::string(payload)});
      });
    }
  }

  void answer(int rank, int64_t step, std::vector<SampledToken> sampled = {}) {
    ModelRunnerOutput output{.step = step, .sampled = std::move(sampled), .timings = {{.rank = rank}}};
    group.on_frame(rank, {FrameType::kOutput, wire::encode(output)});
  }

  std::string error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const CommError& e) {
      return e.what();
    }
    return "no error";
  }

  std::shared_ptr<RankGroup> ranks;
  RankGroup& group;
  ClusterExecutor executor;
  std::vector<std::pair<int, Frame>> sent;
  int broken = -1;
};

TEST_F(RankGroupTest, AStepGoesToAllRanksAndIsAnsweredByAll) {
  executor.submit({.step = 1, .scheduled = {{.id = 5, .num_tokens = 1, .samples = true}}});
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(wire::decode_scheduler_output(sent[1].second.payload).step, 1);
  answer(1, 1, {{.id = 5, .token_id = 7}});
  EXPECT_FALSE(executor.ready());
  answer(0, 1, {{.id = 5, .token_id = 7, .logprobs = {{7, -1.0f, 1}}}});
  EXPECT_TRUE(executor.ready());
  const ModelRunnerOutput output = executor.wait(soon());
  ASSERT_EQ(output.sampled.size(), 1u);  // the lowest rank that samples, not both
  EXPECT_EQ(output.sampled[0].logprobs.size(), 1u);
  EXPECT_EQ(output.timings.size(), 2u);
}

TEST_F(RankGroupTest, TwoStepsInFlightAreAnsweredInOrder) {
  executor.submit({.step = 1});
  executor.submit({.step = 2});
  for (const int64_t step : {1, 2}) {
    answer(0, step);
    answer(1, step);
  }
  EXPECT_EQ(executor.wait(soon()).step, 1);
  EXPECT_EQ(executor.wait(soon()).step, 2);
}

TEST_F(RankGroupTest, ALateRankIsNamed) {
  executor.submit({.step = 1});
  answer(0, 1);
  group.on_state(1, 'R');
  EXPECT_THAT(error_of([&] { executor.wait(Deadline::after(milliseconds(10))); }),
              HasSubstr("step 1 is late, no answer from rank 1 (node2, pid 4711), process state R"));
}

TEST_F(RankGroupTest, AnAnswerToAnotherStepIsAnError) {
  executor.submit({.step = 1});
  answer(0, 1);
  answer(1, 3);
  EXPECT_THAT(error_of([&] { executor.wait(soon()); }), HasSubstr("rank 1 (node2, pid 4711) answered step 3 where 1 was expected"));
  EXPECT_EQ(group.failure()->rank, 1);
}

// Whatever a rank answers, the head names it and lives on.
TEST_F(RankGroupTest, TokensOfOtherRowsAreAnErrorThatNamesTheRank) {
  const auto error_of_answers = [&](std::vector<SampledToken> first, std::vector<SampledToken> second) {
    auto fresh = std::make_shared<RankGroup>(2);
    for (int rank = 0; rank < 2; ++rank) fresh->attach(rank, {"node1", 4710 + rank}, [](FrameType, std::string_view) {});
    ClusterExecutor asking(fresh, {});
    asking.submit({.step = 3, .scheduled = {{.id = 5, .samples = true}, {.id = 6}, {.id = 7, .samples = true}}});
    fresh->on_frame(0, {FrameType::kOutput, wire::encode(ModelRunnerOutput{.step = 3, .sampled = std::move(first)})});
    fresh->on_frame(1, {FrameType::kOutput, wire::encode(ModelRunnerOutput{.step = 3, .sampled = std::move(second)})});
    return error_of([&] { asking.wait(soon()); });
  };
  const std::vector<SampledToken> right = {{.id = 5}, {.id = 7}};
  EXPECT_EQ(error_of_answers(right, right), "no error");
  EXPECT_EQ(error_of_answers({}, right), "no error");  // an earlier stage
  EXPECT_EQ(error_of_answers(right, {{.id = 5}, {.id = 6, .has_token = false}, {.id = 7}}), "no error");  // a prompt's logprobs
  EXPECT_EQ(error_of_answers(right, {{.id = 7}, {.id = 5}}),
            "rank 1 (node1, pid 4711) answered step 3 with a token of request 7 where a token of request 5 was expected");
  EXPECT_EQ(error_of_answers({{.id = 5}}, right),
            "rank 0 (node1, pid 4710) answered step 3 with nothing more where a token of request 7 was expected");
  EXPECT_EQ(error_of_answers(right, {{.id = 5}, {.id = 6}, {.id = 7}}),
            "rank 1 (node1, pid 4711) answered step 3 with a token of request 6 where no token of request 6 was expected");
  EXPECT_EQ(error_of_answers(right, {{.id = 5}, {.id = 7}, {.id = 7}}),
            "rank 1 (node1, pid 4711) answered step 3 with a token of request 7 where nothing more was expected");
  EXPECT_THAT(error_of_answers({}, {}), HasSubstr("rank 1 (node1, pid 4711) answered step 3 with nothing more"));
}

TEST_F(RankGroupTest, TheKilledRankIsTheCauseNotTheOneThatComplains) {
  executor.submit({.step = 1});
  group.on_frame(0, {FrameType::kFailed, pack_pair("comm", "all-reduce: rank 1 is gone")});
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    group.on_exit(1, "was killed by signal 9 (Killed)");
  });
  EXPECT_EQ(error_of([&] { executor.wait(soon()); }), "rank 1 (node2, pid 4711) was killed by signal 9 (Killed)");
  later.join();
  EXPECT_EQ(group.failure()->rank, 1);
  EXPECT_THAT(error_of([&] { executor.submit({.step = 2}); }), HasSubstr("rank 1"));
}

TEST_F(RankGroupTest, ARankThatSaysWhyIsBelievedBeforeItsExitCode) {
  group.on_frame(1, {FrameType::kFailed, pack_pair("own", "not enough memory")});
  group.on_exit(1, "ended with exit code 3");
  EXPECT_EQ(group.failure()->message, "rank 1 (node2, pid 4711): not enough memory");
}

// The exit code tells a flag that cannot be from a cluster that was lost.
TEST_F(RankGroupTest, ARankThatCannotDoWhatWasAskedIsAnErrorOfTheConfiguration) {
  group.on_frame(1, {FrameType::kFailed, pack_pair("config", "does not fit")});
  EXPECT_THROW(group.wait_loaded(std::chrono::seconds(5), std::chrono::seconds(1), [](const auto&) { return true; }), ConfigError);
  EXPECT_EQ(error_of([&] { executor.wait(soon()); }), "rank 1 (node2, pid 4711): does not fit");
}

TEST_F(RankGroupTest, ABrokenConnectionNamesTheRank) {
  broken = 1;
  EXPECT_EQ(error_of([&] { executor.submit({.step = 1}); }), "rank 1 (node2, pid 4711) is lost: broken pipe");
}

// A stopped rank is late for the others long before its parent loses patience; either may speak first.
TEST_F(RankGroupTest, ALateRankThatIsStoppedIsCalledThat) {
  const std::string stopped = "rank 1 (node2, pid 4711) is stopped (process state T), by SIGSTOP or a debugger: it answers nobody and is given up";
  group.on_state(1, 'T');
  EXPECT_EQ(group.failure(), std::nullopt);
  group.on_frame(0, {FrameType::kFailed, pack_pair("comm", "step 3: rank 1 (node2): late, nothing from it for 3.0 s")});
  EXPECT_EQ(group.failure()->message, stopped);
}

TEST_F(RankGroupTest, ALateRankMayBeFoundStoppedAMomentLater) {
  group.on_frame(0, {FrameType::kFailed, pack_pair("comm", "step 3: rank 1 (node2): late, nothing from it for 3.0 s")});
  group.on_state(1, 't');
  EXPECT_THAT(group.failure()->message, HasSubstr("rank 1 (node2, pid 4711) is stopped (process state t)"));
}

TEST_F(RankGroupTest, TheSlowestRankHasComputedLongest) {
  for (const int rank : {0, 1}) {
    const ModelRunnerOutput output{.step = 1, .timings = {{.rank = rank, .compute_us = rank == 1 ? 30.0f : 20.0f, .pp_comm_us = 4}}};
    group.on_frame(rank, {FrameType::kOutput, wire::encode(output)});
  }
  executor.submit({.step = 1});
  executor.wait(soon());
  EXPECT_EQ(group.slowest_rank(), 1);
  EXPECT_NEAR(group.times()[0].pp_comm, 4e-6, 1e-9);
}

TEST_F(RankGroupTest, EndsThatAreExpectedAreNoFailure) {
  group.expect_end();
  group.on_exit(0, "ended with exit code 0");
  group.on_lost(1, "its node closed the connection");
  EXPECT_EQ(group.failure(), std::nullopt);
  broken = 1;
  EXPECT_EQ(error_of([&] { executor.submit({.step = 1}); }), "the ranks have been asked to end");
}

TEST_F(RankGroupTest, MalformedFramesFailTheGroup) {
  group.on_frame(0, {FrameType::kOutput, "garbage"});
  EXPECT_THAT(group.failure()->message, HasSubstr("rank 0 (node1, pid 4710) sent what it should not"));
  group.on_frame(7, {FrameType::kOutput, ""});  // no such rank: dropped
}

TEST_F(RankGroupTest, ALossIsNoticedWithoutAStepInFlight) {
  EXPECT_FALSE(executor.ready());
  group.on_exit(1, "was killed by signal 11 (Segmentation fault)");
  EXPECT_TRUE(executor.ready());
  EXPECT_THAT(error_of([&] { executor.wait(soon()); }), HasSubstr("rank 1 (node2, pid 4711) was killed by signal 11"));
  EXPECT_FALSE(executor.recover("lost"));
}

TEST_F(RankGroupTest, RecoveryGoesOnWithOtherRanksFromStepOne) {
  auto others = std::make_shared<RankGroup>(2);
  for (int rank = 0; rank < 2; ++rank) others->attach(rank, {"node1", 1}, [](FrameType, std::string_view) {});
  std::string asked;
  ClusterExecutor recovering(ranks, {}, [&](const std::string& reason) {
    asked = reason;
    return others;
  });
  recovering.submit({.step = 9});
  group.on_exit(0, "was killed by signal 9 (Killed)");
  EXPECT_TRUE(recovering.recover("rank 0 is gone"));
  EXPECT_EQ(asked, "rank 0 is gone");
  recovering.submit({.step = 1});
  for (int rank = 0; rank < 2; ++rank) others->on_frame(rank, {FrameType::kOutput, wire::encode(ModelRunnerOutput{.step = 1})});
  EXPECT_EQ(recovering.wait(soon()).step, 1);
}

TEST_F(RankGroupTest, TheStoreAnswersEarlyAndLateQuestions) {
  group.on_frame(0, {FrameType::kStoreGet, "address"});
  EXPECT_TRUE(sent.empty());
  group.on_frame(1, {FrameType::kStoreSet, pack_pair("address", "10.0.0.2:1")});
  group.on_frame(1, {FrameType::kStoreGet, "address"});
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].first, 0);
  EXPECT_EQ(sent[1].first, 1);
  EXPECT_EQ(unpack_pair(sent[0].second.payload).second, "10.0.0.2:1");
}

TEST_F(RankGroupTest, LoadingWaitsForAllAndShowsProgress) {
  group.on_frame(0, {FrameType::kProgress, R"({"done":1,"total":2})"});
  group.on_frame(0, {FrameType::kLoaded, R"({"num_kv_blocks":5})"});
  int shown = 0;
  const auto loaded = group.wait_loaded(seconds(5), milliseconds(5), [&](const std::vector<Json>& progress) {
    EXPECT_EQ(progress[0]["done"], 1);
    if (++shown == 2) group.on_frame(1, {FrameType::kLoaded, R"({"num_kv_blocks":4})"});
    return true;
  });
  EXPECT_GE(shown, 2);
  EXPECT_EQ(loaded[1]["num_kv_blocks"], 4);
}

TEST_F(RankGroupTest, LoadingMayBeInterrupted) {
  EXPECT_TRUE(group.wait_loaded(seconds(5), milliseconds(5), [](const auto&) { return false; }).empty());
}

TEST_F(RankGroupTest, LoadingWithoutProgressEndsAtTheDeadline) {
  EXPECT_THAT(error_of([&] { group.wait_loaded(milliseconds(30), milliseconds(5), [](const auto&) { return true; }); }),
              HasSubstr("rank 0 (node1, pid 4710) made no progress with loading"));
}

}  // namespace
}  // namespace tutti
