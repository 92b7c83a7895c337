// What the scheduler does when blocks run out and when requests end while steps are in flight.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <vector>

#include "engine/scheduler_testing.h"

namespace tutti {
namespace {

TEST(Scheduler, PreemptsTheLastInLineAndItsTextIsTheSame) {
  auto options = make_options();
  options.num_kv_blocks = 6;
  options.enable_prefix_caching = false;
  Harness h(options);
  h.scheduler.add(make_request(1, 30, 40));
  h.scheduler.add(make_request(2, 30, 40));
  h.run_to_end();
  EXPECT_GT(h.scheduler.counters().num_preemptions, 0);
  EXPECT_EQ(h.tokens[1], expected_tokens(1, 40));
  EXPECT_EQ(h.tokens[2], expected_tokens(2, 40));
  EXPECT_EQ(h.scheduler.counters().prompt_tokens, 60);
}

// Blocks 0, 1, 4 and 2, 3, 5 are held; the first request needs a fourth block, and gets one of the second's.
TEST(Scheduler, PreemptionGivesTheBlocksToWhoComesFirst) {
  auto options = make_options();
  options.num_kv_blocks = 6;
  options.enable_prefix_caching = false;
  Harness h(options);
  h.scheduler.add(make_request(1, 30, 40));
  h.scheduler.add(make_request(2, 30, 40));
  SchedulerOutput s = h.step();
  EXPECT_EQ(s.scheduled[0].new_block_ids, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(s.scheduled[1].new_block_ids, (std::vector<int32_t>{2, 3}));
  h.step();
  h.step();
  s = h.step();  // the 33rd token of each
  EXPECT_EQ(s.scheduled[0].new_block_ids, (std::vector<int32_t>{4}));
  EXPECT_EQ(s.scheduled[1].new_block_ids, (std::vector<int32_t>{5}));
  for (int i = 5; i < 20; ++i) EXPECT_EQ(h.step().num_tokens(), 2);
  s = h.step();  // the 49th
  ASSERT_EQ(s.scheduled.size(), 1u);
  EXPECT_EQ(s.scheduled[0].id, 1u);
  EXPECT_EQ(s.scheduled[0].new_block_ids, (std::vector<int32_t>{5}));
  EXPECT_EQ(s.dropped, (std::vector<RequestId>{2}));
  EXPECT_EQ(h.scheduler.num_running(), 1);
  EXPECT_EQ(h.scheduler.num_waiting(), 1);
  EXPECT_EQ(h.scheduler.pool().num_used(), 4);
  while (!h.finished.contains(1)) h.step();
  s = h.step();  // starts again with what it had said
  ASSERT_EQ(s.new_requests.size(), 1u);
  EXPECT_EQ(s.new_requests[0].num_prompt_tokens, 30);
  EXPECT_EQ(s.new_requests[0].token_ids.size(), 49u);
  EXPECT_EQ(s.scheduled[0].num_tokens, 49);
  EXPECT_EQ(s.scheduled[0].new_block_ids.size(), 4u);
  h.run_to_end();
  EXPECT_EQ(h.tokens[2], expected_tokens(2, 40));
}

// The last token of a request is on its way when its blocks are taken: it ends without having to start again.
TEST(Scheduler, ARequestThatEndsWhileItIsPreemptedIsCounted) {
  auto options = make_options();
  options.num_kv_blocks = 2;
  Harness h(options);
  h.scheduler.add(make_request(1, 16, 3));
  h.scheduler.add(make_request(2, 15, 1));
  const SchedulerOutput a = h.scheduler.schedule();
  const SchedulerOutput b = h.scheduler.schedule();
  EXPECT_EQ(b.dropped, (std::vector<RequestId>{2}));
  h.scheduler.update(h.workers.run(a));
  h.collect();
  EXPECT_EQ(h.finished[2].finish_reason, FinishReason::kLength);
  EXPECT_EQ(h.scheduler.counters().prompt_tokens, 16 + 15);
  h.scheduler.update(h.workers.run(b));
}

TEST(Scheduler, AbortInFlightFreesBlocksAndTellsWorkers) {
  Harness h(make_options());
  h.scheduler.add(make_request(1, 20, 50));
  const SchedulerOutput a = h.scheduler.schedule();
  h.scheduler.abort(1);
  h.scheduler.update(h.workers.run(a));
  h.collect();
  EXPECT_EQ(h.finished[1].finish_reason, FinishReason::kAbort);
  EXPECT_EQ(h.scheduler.pool().num_used(), 0);
  h.scheduler.add(make_request(2, 4, 1));
  EXPECT_EQ(h.step().dropped, (std::vector<RequestId>{1}));
}

// The blocks of an aborted request go on to the next one while steps that write to them are in flight.
TEST(Scheduler, AbortWithTwoStepsInFlightHandsTheBlocksOn) {
  auto options = make_options();
  options.num_kv_blocks = 2;
  Harness h(options);
  h.scheduler.add(make_request(1, 20, 50));
  const SchedulerOutput a = h.scheduler.schedule();
  const SchedulerOutput b = h.scheduler.schedule();
  EXPECT_EQ(a.scheduled[0].new_block_ids, (std::vector<int32_t>{0, 1}));
  h.scheduler.add(make_request(2, 20, 1));
  h.scheduler.abort(1);
  const SchedulerOutput c = h.scheduler.schedule();
  ASSERT_EQ(c.scheduled.size(), 1u);
  EXPECT_EQ(c.scheduled[0].id, 2u);
  EXPECT_EQ(c.scheduled[0].new_block_ids, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(c.dropped, (std::vector<RequestId>{1}));
  for (const SchedulerOutput* step : {&a, &b, &c}) h.scheduler.update(h.workers.run(*step));
  h.collect();
  EXPECT_TRUE(h.tokens[1].empty());
  EXPECT_EQ(h.finished[1].finish_reason, FinishReason::kAbort);
  EXPECT_EQ(h.tokens[2], expected_tokens(2, 1));
}

// Random arrivals, aborts (in every second round), sizes and look-ahead under memory pressure: every request that was not
// aborted gets exactly its tokens, each prompt token counts once, budgets hold, and nothing starves.
TEST(Scheduler, RandomLoadGivesEveryRequestItsTokens) {
  std::mt19937 rng(7);
  for (int round = 0; round < 40; ++round) {
    auto options = make_options();
    options.num_kv_blocks = 12 + static_cast<int64_t>(rng() % 40);
    options.enable_prefix_caching = rng() % 2 == 0;
    Harness h(options);
    std::map<RequestId, int> wanted;
    std::deque<SchedulerOutput> flying;
    RequestId next = 1;
    int64_t prompt_tokens = 0;
    for (int turn = 0; turn < 3000 && (next <= 60 || h.scheduler.has_requests() || !flying.empty()); ++turn) {
      if (next <= 60 && rng() % 3 == 0) {
        const int count = 1 + static_cast<int>(rng() % 30);
        wanted[next] = count;
        const int prompt = 1 + static_cast<int>(rng() % 120);
        prompt_tokens += prompt;
        h.scheduler.add(make_request(next, prompt, count, rng() % 2 ? 777 : 0));
        ++next;
      }
      if (round % 2 == 1 && !wanted.empty() && rng() % 40 == 0) {
        const RequestId id = 1 + rng() % (next - 1);
        h.scheduler.abort(id);
        if (!h.finished.contains(id)) wanted.erase(id);
      }
      SchedulerOutput s = h.scheduler.schedule();
      ASSERT_LE(s.num_tokens(), options.scheduler.max_num_batched_tokens);
      ASSERT_LE(h.scheduler.num_running(), options.scheduler.max_num_seqs);
      if (!s.scheduled.empty()) flying.push_back(std::move(s));
      if (flying.size() >= 2 || (!flying.empty() && rng() % 2)) {
        h.scheduler.update(h.workers.run(flying.front()));
        flying.pop_front();
      }
      h.collect();
    }
    EXPECT_FALSE(h.scheduler.has_requests());
    if (round % 2 == 0) {
      EXPECT_EQ(h.scheduler.counters().prompt_tokens, prompt_tokens);
    }
    for (const auto& [id, count] : wanted) EXPECT_EQ(h.tokens[id], expected_tokens(id, count)) << "request " << id;
  }
}

}  // namespace
}  // namespace tutti
