#include "engine/engine_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <map>
#include <thread>

#include "engine/fake_executor.h"

namespace tutti {
namespace {

// Runs an EngineCore on a thread of its own and waits for finished requests.
class EngineCoreTest : public testing::Test {
 protected:
  void start(int64_t fail_at_step = 0) {
    EngineConfig config;
    config.scheduler.max_model_len = 1000;
    executor_.fail_at_step = fail_at_step;
    core_ = std::make_unique<EngineCore>(config, std::vector<int32_t>{9}, executor_, [this](std::vector<TokenOutput> outputs) {
      std::lock_guard lock(mutex_);
      for (TokenOutput& o : outputs) {
        auto& tokens = tokens_[o.id];
        tokens.insert(tokens.end(), o.token_ids.begin(), o.token_ids.end());
        if (o.finish_reason != FinishReason::kNone) finished_[o.id] = std::move(o);
      }
      changed_.notify_all();
    });
    thread_ = std::thread([this] { core_->run(); });
  }
  void TearDown() override {
    core_->stop();
    thread_.join();
  }
  TokenOutput wait_for(RequestId id) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(10), [&] { return finished_.contains(id); }));
    return finished_[id];
  }
  static EngineRequest request(RequestId id, int max_tokens) {
    EngineRequest r;
    r.id = id;
    r.prompt_token_ids = {1, 2, 3};
    r.sampling.max_tokens = max_tokens;
    return r;
  }

  FakeExecutor executor_{ExecutorInfo{.num_kv_blocks = 100},
                         [this](RequestId id, int64_t i) {
                           if (id == 3 && i == 2) gate_.get_future().wait();
                           return id == 2 && i == 3 ? 9 : 50 + static_cast<int32_t>(i);
                         }};
  std::promise<void> gate_;  // request 3 computes its third token when this opens
  std::unique_ptr<EngineCore> core_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, std::vector<int32_t>> tokens_;
  std::map<RequestId, TokenOutput> finished_;
};

TEST_F(EngineCoreTest, GeneratesUntilLengthOrEndOfSequence) {
  start();
  ASSERT_TRUE(core_->add_request(request(1, 5)));
  ASSERT_TRUE(core_->add_request(request(2, 100)));
  EXPECT_EQ(wait_for(1).finish_reason, FinishReason::kLength);
  EXPECT_EQ(wait_for(2).finish_reason, FinishReason::kStop);
  EXPECT_EQ(tokens_[1], (std::vector<int32_t>{50, 51, 52, 53, 54}));
  EXPECT_EQ(tokens_[2], (std::vector<int32_t>{50, 51, 52, 9}));
  EXPECT_EQ(core_->stats().generation_tokens, 9);
}

TEST_F(EngineCoreTest, AFailedExecutorEndsEveryRequestWithItsMessage) {
  start(/*fail_at_step=*/3);
  ASSERT_TRUE(core_->add_request(request(1, 500)));
  const TokenOutput end = wait_for(1);
  EXPECT_EQ(end.finish_reason, FinishReason::kError);
  EXPECT_EQ(end.error, "rank 1 is lost");
  EXPECT_FALSE(core_->add_request(request(2, 5)));
  EXPECT_FALSE(core_->stats().healthy);
}

TEST_F(EngineCoreTest, RecoveredRanksGoOnWhereTheOthersStopped) {
  executor_.can_recover = true;
  start(/*fail_at_step=*/3);
  ASSERT_TRUE(core_->add_request(request(1, 7)));
  EXPECT_EQ(wait_for(1).finish_reason, FinishReason::kLength);
  EXPECT_EQ(tokens_[1], (std::vector<int32_t>{50, 51, 52, 53, 54, 55, 56}));
  EXPECT_TRUE(core_->stats().healthy);
}

// What kills its ranks each time does not do so for ever, and the others get their answers.
TEST_F(EngineCoreTest, ARequestThatRanksDoNotSurviveEnds) {
  executor_.can_recover = true;
  executor_.rule = [](RequestId id, int64_t) -> int32_t { return id == 2 ? throw CommError("rank 0 is lost") : 50; };
  start();
  ASSERT_TRUE(core_->add_request(request(1, 200)));
  ASSERT_TRUE(core_->add_request(request(2, 5)));
  ASSERT_TRUE(core_->add_request(request(3, 5)));
  const TokenOutput end = wait_for(2);
  EXPECT_EQ(end.finish_reason, FinishReason::kError);
  EXPECT_THAT(end.error, testing::HasSubstr("before a token came, last: rank 0 is lost"));
  EXPECT_EQ(wait_for(1).finish_reason, FinishReason::kLength);
  EXPECT_TRUE(core_->stats().healthy);
}

TEST_F(EngineCoreTest, DrainRefusesNewRequestsAndFinishesOldOnes) {
  start();
  ASSERT_TRUE(core_->add_request(request(1, 50)));
  core_->drain();
  EXPECT_FALSE(core_->add_request(request(2, 5)));
  EXPECT_EQ(wait_for(1).finish_reason, FinishReason::kLength);
}

// A request that comes while the engine ends is refused or told: its client never waits for nothing.
TEST_F(EngineCoreTest, EveryRequestThatWasTakenEnds) {
  for (int round = 0; round < 30; ++round) {
    start();
    std::atomic<RequestId> last{0};
    std::thread client([&] {
      for (RequestId id = 100; core_->add_request(request(id, 2)); ++id) last = id;
    });
    while (last < 110) std::this_thread::yield();
    core_->stop();
    client.join();
    for (RequestId id = 100; id <= last; ++id) EXPECT_NE(wait_for(id).finish_reason, FinishReason::kNone);
    thread_.join();
    finished_.clear();
    executor_ = FakeExecutor(ExecutorInfo{.num_kv_blocks = 100}, [](RequestId, int64_t) { return 50; });
  }
  start();  // for TearDown
}

TEST_F(EngineCoreTest, WhatALibraryThrowsEndsRequestsToo) {
  executor_.rule = [](RequestId, int64_t i) -> int32_t { return i < 3 ? 50 : throw std::bad_alloc(); };
  start();
  ASSERT_TRUE(core_->add_request(request(1, 500)));
  EXPECT_EQ(wait_for(1).finish_reason, FinishReason::kError);
  EXPECT_FALSE(core_->stats().healthy);
}

TEST_F(EngineCoreTest, AbortEndsARequest) {
  start();
  ASSERT_TRUE(core_->add_request(request(3, 900)));
  core_->abort(3);
  gate_.set_value();
  EXPECT_EQ(wait_for(3).finish_reason, FinishReason::kAbort);
}

}  // namespace
}  // namespace tutti
