#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/scheduler_testing.h"

namespace tutti {
namespace {

TEST(Scheduler, ARestartLosesNoToken) {
  Harness h(make_options());
  for (RequestId id : {1, 2, 3}) h.scheduler.add(make_request(id, 100, 20));
  for (int i = 0; i < 12; ++i) h.step();
  h.scheduler.schedule();  // never answered
  h.collect();
  EXPECT_FALSE(h.tokens[1].empty());
  h.scheduler.restart();
  h.scheduler.check_invariants();
  EXPECT_EQ(h.scheduler.num_running(), 0);
  EXPECT_EQ(h.scheduler.num_waiting(), 3);
  EXPECT_EQ(h.scheduler.pool().num_used(), 0);
  h.workers = FakeExecutor({}, [](RequestId id, int64_t i) { return static_cast<int32_t>(id * 100 + static_cast<uint64_t>(i)); });
  EXPECT_EQ(h.step().step, 1);
  h.run_to_end();
  for (RequestId id : {1, 2, 3}) EXPECT_EQ(h.tokens[id], expected_tokens(id, 20));
}

// What /metrics says of requests that were preempted, or waited while the ranks were started again.
TEST(Scheduler, CountersTakeEachRequestOnce) {
  auto options = make_options();
  options.num_kv_blocks = 8;
  Harness h(options);
  for (RequestId id : {1, 2, 3, 4}) h.scheduler.add(make_request(id, 40, 60, 900));
  for (int i = 0; i < 100; ++i) h.step();
  EXPECT_GT(h.scheduler.counters().num_preemptions, 0);
  h.scheduler.restart();
  h.workers = FakeExecutor({}, h.workers.rule);
  h.scheduler.add(make_request(5, 40, 3, 1900));
  h.scheduler.restart();
  h.run_to_end();
  const Scheduler::Counters& c = h.scheduler.counters();
  EXPECT_EQ(c.prompt_tokens, 5 * 40);
  EXPECT_EQ(c.prefix_cache_queries, 5 * 40);
  EXPECT_LE(c.prefix_cache_hits, c.prompt_tokens);
  EXPECT_NE(h.finished[5].started, Clock::time_point{});
}

TEST(Scheduler, PrefillIsChunkedAndDecodesComeFirst) {
  Harness h(make_options());
  h.scheduler.add(make_request(1, 10, 20));
  SchedulerOutput s = h.step();
  ASSERT_EQ(s.scheduled.size(), 1u);
  EXPECT_EQ(s.scheduled[0].new_block_ids, (std::vector<int32_t>{0}));
  EXPECT_TRUE(s.scheduled[0].samples);

  h.scheduler.add(make_request(2, 150, 4));
  s = h.step();
  ASSERT_EQ(s.scheduled.size(), 2u);
  EXPECT_EQ(s.scheduled[0].id, 1u);
  EXPECT_EQ(s.scheduled[0].num_tokens, 1);
  EXPECT_EQ(s.scheduled[1].num_tokens, 63);
  EXPECT_FALSE(s.scheduled[1].samples);
  EXPECT_EQ(s.scheduled[1].new_block_ids, (std::vector<int32_t>{1, 2, 3, 4}));
  s = h.step();
  EXPECT_EQ(s.scheduled[1].num_tokens, 63);
  EXPECT_EQ(s.scheduled[1].num_computed_tokens, 63);
  s = h.step();
  EXPECT_EQ(s.scheduled[1].num_tokens, 24);
  EXPECT_TRUE(s.scheduled[1].samples);
  h.run_to_end();
  EXPECT_EQ(h.tokens[1], expected_tokens(1, 20));
  EXPECT_EQ(h.tokens[2], expected_tokens(2, 4));
  EXPECT_EQ(h.finished[2].finish_reason, FinishReason::kLength);
}

TEST(Scheduler, LongPromptThresholdLeavesBudgetToOthers) {
  auto options = make_options();
  options.scheduler.long_prefill_token_threshold = 32;
  Harness h(options);
  h.scheduler.add(make_request(1, 500, 1));
  h.scheduler.add(make_request(2, 20, 1));
  const SchedulerOutput s = h.step();
  ASSERT_EQ(s.scheduled.size(), 2u);
  EXPECT_EQ(s.scheduled[0].num_tokens, 32);
  EXPECT_EQ(s.scheduled[1].num_tokens, 20);
}

TEST(Scheduler, PrefixHitReusesBlocksAndCountsCachedTokens) {
  Harness h(make_options());
  h.scheduler.add(make_request(1, 40, 2, 500));
  h.run_to_end();
  h.scheduler.add(make_request(2, 40, 2, 500));
  const SchedulerOutput s = h.step();
  ASSERT_EQ(s.scheduled.size(), 1u);
  EXPECT_EQ(s.scheduled[0].num_computed_tokens, 32);
  EXPECT_EQ(s.scheduled[0].num_tokens, 8);
  EXPECT_EQ(s.scheduled[0].new_block_ids, (std::vector<int32_t>{0, 1, 3}));  // two found, one fresh
  h.run_to_end();
  EXPECT_EQ(h.finished[2].num_cached_tokens, 32);
  EXPECT_EQ(h.scheduler.counters().prefix_cache_hits, 32);
}

TEST(Scheduler, WhatPromptsShareIsComputedOnce) {
  auto options = make_options();
  options.scheduler.max_num_batched_tokens = 400;
  for (const bool caching : {true, false}) {
    options.enable_prefix_caching = caching;
    Harness h(options);
    for (RequestId id : {1, 2, 3, 4}) h.scheduler.add(make_request(id, 72, 5, 500));
    h.scheduler.add(make_request(9, 20, 5));  // is not held up by those that wait
    const SchedulerOutput first = h.scheduler.schedule();
    EXPECT_EQ(first.num_tokens(), caching ? 72 + 20 : 4 * 72 + 20);
    const SchedulerOutput ahead = h.scheduler.schedule();  // the blocks are not there yet
    EXPECT_EQ(ahead.num_tokens(), caching ? 2 : 5);
    h.scheduler.update(h.workers.run(first));
    h.scheduler.update(h.workers.run(ahead));
    if (caching) {
      EXPECT_EQ(h.step().num_tokens(), 2 + 3 * 8);
    }
    h.run_to_end();
    for (RequestId id : {1, 2, 3, 4, 9}) EXPECT_EQ(h.tokens[id], expected_tokens(id, 5));
  }
}

TEST(Scheduler, WhoSharesAPartOfAPromptWaitsForThatPart) {
  auto options = make_options();
  options.scheduler.max_num_batched_tokens = 400;
  options.scheduler.long_prefill_token_threshold = 64;
  Harness h(options);
  h.scheduler.add(make_request(1, 500, 2, 500));
  EngineRequest other = make_request(2, 200, 2);
  for (int i = 0; i < 96; ++i) other.prompt_token_ids[static_cast<size_t>(i)] = 500 + i;
  h.scheduler.add(other);
  h.scheduler.add(make_request(3, 63, 2, 500));  // too little to wait for
  SchedulerOutput s = h.step();
  ASSERT_EQ(s.scheduled.size(), 2u);
  EXPECT_EQ(s.scheduled[1].id, 3u);
  s = h.step();
  ASSERT_EQ(s.scheduled.size(), 3u);
  EXPECT_EQ(s.scheduled[2].id, 2u);
  EXPECT_EQ(s.scheduled[2].num_computed_tokens, 64);  // two more blocks are not worth another step
  h.run_to_end();
  EXPECT_EQ(h.tokens[2], expected_tokens(2, 2));
}

// Whoever waits does so for one ahead of it that runs: not for later ones, and not for one that has gone.
TEST(Scheduler, WaitingForBlocksEnds) {
  auto options = make_options();
  options.scheduler.max_num_batched_tokens = 400;
  options.scheduler.priority_policy = true;
  Harness h(options);
  for (RequestId id : {1, 2}) h.scheduler.add(make_request(id, 72, 5, 500));
  SchedulerOutput first = h.scheduler.schedule();
  EXPECT_EQ(first.num_tokens(), 72);
  h.scheduler.abort(1);
  SchedulerOutput second = h.scheduler.schedule();
  ASSERT_EQ(second.scheduled.size(), 1u);
  EXPECT_EQ(second.scheduled[0].id, 2u);
  EngineRequest urgent = make_request(3, 72, 5, 500);
  urgent.priority = -1;
  h.scheduler.add(urgent);
  for (RequestId id : {4, 5}) h.scheduler.add(make_request(id, 72, 5, 500));
  SchedulerOutput third = h.scheduler.schedule();
  ASSERT_EQ(third.scheduled.size(), 2u);
  EXPECT_EQ(third.scheduled[0].id, 2u);
  EXPECT_EQ(third.scheduled[1].id, 3u);
  for (const SchedulerOutput* step : {&first, &second, &third}) h.scheduler.update(h.workers.run(*step));
  EXPECT_EQ(h.step().scheduled.size(), 4u);
  h.run_to_end();
  for (RequestId id : {2, 3, 4, 5}) EXPECT_EQ(h.tokens[id], expected_tokens(id, 5));
}

TEST(Scheduler, LookAheadSchedulesOnATokenThatIsNotKnownYet) {
  Harness h(make_options());
  h.scheduler.add(make_request(1, 4, 3));
  const SchedulerOutput first = h.scheduler.schedule();
  const SchedulerOutput second = h.scheduler.schedule();
  ASSERT_EQ(second.scheduled.size(), 1u);
  EXPECT_EQ(second.scheduled[0].num_computed_tokens, 4);
  EXPECT_EQ(second.step, 2);
  EXPECT_TRUE(h.scheduler.schedule().scheduled.empty());  // at most one token ahead
  h.scheduler.update(h.workers.run(first));
  h.scheduler.update(h.workers.run(second));
  h.collect();
  EXPECT_EQ(h.tokens[1], expected_tokens(1, 2));
}

TEST(Scheduler, LookAheadTakesTheBlockOfATokenThatIsNotKnownYet) {
  Harness h(make_options());
  h.scheduler.add(make_request(1, 16, 3));
  const SchedulerOutput first = h.scheduler.schedule();
  EXPECT_EQ(first.scheduled[0].new_block_ids, (std::vector<int32_t>{0}));
  const SchedulerOutput second = h.scheduler.schedule();
  EXPECT_EQ(second.scheduled[0].new_block_ids, (std::vector<int32_t>{1}));
  EXPECT_EQ(h.scheduler.pool().num_used(), 2);
}

TEST(Scheduler, LookAheadDoesNotRunPastMaxTokens) {
  Harness h(make_options());
  h.scheduler.add(make_request(1, 4, 1));
  const SchedulerOutput first = h.scheduler.schedule();
  EXPECT_TRUE(h.scheduler.schedule().scheduled.empty());
  h.scheduler.update(h.workers.run(first));
  h.collect();
  EXPECT_EQ(h.finished[1].finish_reason, FinishReason::kLength);
}

TEST(Scheduler, StopTokenEndsAndTheStepInFlightIsIgnored) {
  Harness h(make_options());
  EngineRequest r = make_request(1, 4, 50);
  r.sampling.stop_token_ids = {101};
  r.sampling.min_tokens = 1;
  h.scheduler.add(r);
  SchedulerOutput a = h.scheduler.schedule();
  SchedulerOutput b = h.scheduler.schedule();
  h.scheduler.update(h.workers.run(a));
  SchedulerOutput c = h.scheduler.schedule();
  h.scheduler.update(h.workers.run(b));  // samples the stop token
  h.collect();
  EXPECT_EQ(h.finished[1].finish_reason, FinishReason::kStop);
  EXPECT_EQ(h.finished[1].stop_token, 101);
  h.scheduler.update(h.workers.run(c));
  h.collect();
  EXPECT_EQ(h.tokens[1], (std::vector<int32_t>{100, 101}));
  EXPECT_EQ(h.scheduler.pool().num_used(), 0);
}

// A long prompt takes what decodes leave of every step: they never wait for it, and later arrivals do not overtake it.
TEST(Scheduler, NobodyStarves) {
  Harness h(make_options());
  for (RequestId id = 1; id <= 4; ++id) h.scheduler.add(make_request(id, 4, 100));
  h.step();
  h.scheduler.add(make_request(10, 600, 2));
  RequestId next = 11;
  int steps = 0;
  while (!h.tokens.contains(10)) {
    h.scheduler.add(make_request(next++, 8, 1));
    const SchedulerOutput s = h.step();
    ++steps;
    ASSERT_LE(steps, 11);
    ASSERT_GE(s.scheduled.size(), 5u);
    for (RequestId id = 1; id <= 4; ++id) EXPECT_EQ(s.scheduled[id - 1].num_tokens, 1);
    EXPECT_EQ(s.scheduled[4].id, 10u);
    EXPECT_EQ(s.scheduled[4].num_tokens, std::min<int64_t>(60, 600 - (steps - 1) * 60));
  }
  EXPECT_EQ(steps, 10);
  h.run_to_end();
  for (RequestId id = 11; id < next; ++id) EXPECT_EQ(h.finished[id].finish_reason, FinishReason::kLength);
}

TEST(Scheduler, ARequestThatCanNeverFitEndsWithAnError) {
  auto options = make_options();
  options.num_kv_blocks = 3;
  Harness h(options);
  h.scheduler.add(make_request(1, 100, 4));
  h.collect();
  EXPECT_EQ(h.finished[1].finish_reason, FinishReason::kError);
  EXPECT_NE(h.finished[1].error.find("needs 7 KV blocks"), std::string::npos);
  h.scheduler.add(make_request(2, 40, 100));  // starts, then outgrows the whole cache
  h.run_to_end();
  EXPECT_EQ(h.finished[2].finish_reason, FinishReason::kError);
  EXPECT_NE(h.finished[2].error.find("full with this request alone"), std::string::npos);
}

TEST(Scheduler, PriorityGoesFirstWhenAsked) {
  auto options = make_options();
  options.scheduler.priority_policy = true;
  options.scheduler.max_num_seqs = 1;
  Harness h(options);
  EngineRequest low = make_request(1, 4, 1);
  low.priority = 5;
  h.scheduler.add(low);
  h.scheduler.add(make_request(2, 4, 1));
  EXPECT_EQ(h.step().scheduled[0].id, 2u);
  EXPECT_EQ(h.step().scheduled[0].id, 1u);
}

TEST(Scheduler, DeadlineEndsARequest) {
  Harness h(make_options());
  EngineRequest r = make_request(1, 4, 1);
  r.deadline = Clock::now() - std::chrono::seconds(1);
  h.scheduler.add(r);
  h.step();
  EXPECT_EQ(h.finished[1].finish_reason, FinishReason::kError);
}

TEST(Scheduler, PipelineStepsHoldDifferentRequests) {
  auto options = make_options();
  options.look_ahead = false;
  options.pipeline_stages = 2;
  Harness h(options);
  for (RequestId id = 1; id <= 4; ++id) h.scheduler.add(make_request(id, 4, 10));
  h.step();
  const SchedulerOutput a = h.scheduler.schedule();
  const SchedulerOutput b = h.scheduler.schedule();
  EXPECT_EQ(a.scheduled.size(), 2u);
  EXPECT_EQ(b.scheduled.size(), 2u);
  EXPECT_NE(a.scheduled[0].id, b.scheduled[0].id);
  h.scheduler.update(h.workers.run(a));
  h.scheduler.update(h.workers.run(b));
  h.collect();
  h.run_to_end();
  for (RequestId id = 1; id <= 4; ++id) EXPECT_EQ(h.tokens[id], expected_tokens(id, 10));
}

// While all stages have a step, the one sent ahead holds prompts: requests that decode keep to as many steps as there are stages.
TEST(Scheduler, APipelineIsSentPromptsAhead) {
  auto options = make_options();
  options.look_ahead = false;
  options.pipeline_stages = 2;
  options.smallest_piece = 8;
  options.largest_piece = 8;
  Harness h(options);
  for (RequestId id = 1; id <= 2; ++id) h.scheduler.add(make_request(id, 4, 10));
  h.step();
  h.scheduler.add(make_request(3, 60, 2));
  const SchedulerOutput a = h.scheduler.schedule();  // a token of the first, a piece of the third
  const SchedulerOutput b = h.scheduler.schedule();
  const SchedulerOutput ahead = h.scheduler.schedule();
  EXPECT_EQ(a.scheduled.size(), 2u);
  EXPECT_EQ(b.scheduled.size(), 2u);
  ASSERT_EQ(ahead.scheduled.size(), 1u);
  EXPECT_EQ(ahead.scheduled[0].id, 3u);
  h.scheduler.update(h.workers.run(a));
  const SchedulerOutput next = h.scheduler.schedule();
  ASSERT_EQ(next.scheduled.size(), 2u);
  EXPECT_EQ(next.scheduled[0].id, a.scheduled[0].id);
  h.scheduler.update(h.workers.run(b));
  h.scheduler.update(h.workers.run(ahead));
  h.scheduler.update(h.workers.run(next));
  h.collect();
  h.run_to_end();
  for (RequestId id = 1; id <= 2; ++id) EXPECT_EQ(h.tokens[id], expected_tokens(id, 10));
  EXPECT_EQ(h.tokens[3], expected_tokens(3, 2));
}

// A prompt that one step would take whole leaves the stages before it idle until it has passed all others.
TEST(Scheduler, PipelineStagesShareAShortPromptInPiecesOfTheSmallestSize) {
  auto options = make_options();
  options.look_ahead = false;
  options.pipeline_stages = 2;
  options.smallest_piece = 32;
  Harness h(options);
  h.scheduler.add(make_request(1, 64, 3));
  const SchedulerOutput a = h.scheduler.schedule();
  const SchedulerOutput b = h.scheduler.schedule();
  EXPECT_EQ(a.num_tokens(), 33);  // and room for one decoding request
  EXPECT_EQ(b.num_tokens(), 31);
  h.scheduler.update(h.workers.run(a));
  h.scheduler.update(h.workers.run(b));
  h.collect();
  h.run_to_end();
  EXPECT_EQ(h.tokens[1], expected_tokens(1, 3));
}

TEST(Scheduler, PipelineStagesShareALongPrompt) {
  auto options = make_options();
  options.scheduler.max_num_batched_tokens = 2048;
  options.num_kv_blocks = 200;
  options.look_ahead = false;
  options.pipeline_stages = 2;
  for (const bool chunked : {true, false}) {
    options.scheduler.enable_chunked_prefill = chunked;
    Harness h(options);
    h.scheduler.add(make_request(1, 1600, 3));
    const SchedulerOutput a = h.scheduler.schedule();
    EXPECT_EQ(a.num_tokens(), chunked ? 200 : 1600);  // an eighth, and room for one decoding request
    const SchedulerOutput b = h.scheduler.schedule();
    EXPECT_EQ(b.scheduled.size(), chunked ? 1u : 0u);
    if (chunked) {
      EXPECT_EQ(b.scheduled[0].num_computed_tokens, a.num_tokens());
    }
    h.scheduler.update(h.workers.run(a));
    if (chunked) h.scheduler.update(h.workers.run(b));
    h.collect();
    h.run_to_end();
    EXPECT_EQ(h.tokens[1], expected_tokens(1, 3));
  }
}

// Prompts that are mostly cached cost a step few rows, but workers get all their tokens.
TEST(Scheduler, AStepsMessageHasAnEnd) {
  constexpr int kTokens = 1'500'000;
  auto options = make_options();
  options.scheduler.max_num_batched_tokens = 4 * kTokens;
  options.scheduler.max_model_len = 2 * kTokens;
  options.block_size = 1000;
  options.num_kv_blocks = 4 * kTokens / 1000 + 8;
  Harness h(options);
  EngineRequest with_lists = make_request(4, 10, 1, 7);
  with_lists.sampling.allowed_token_ids.resize(5 << 20);
  for (RequestId id : {1, 2, 3}) h.scheduler.add(make_request(id, kTokens, 1, 4 + static_cast<int>(id)));
  h.scheduler.add(with_lists);
  const auto ids = [](const SchedulerOutput& step) {
    std::vector<RequestId> all;
    for (const NewRequestData& r : step.new_requests) all.push_back(r.id);
    return all;
  };
  EXPECT_EQ(ids(h.step()), (std::vector<RequestId>{1, 2}));
  EXPECT_EQ(ids(h.step()), (std::vector<RequestId>{3}));
  EXPECT_EQ(ids(h.step()), (std::vector<RequestId>{4}));  // more than there should be, but nobody else waits for it
  h.run_to_end();
  EXPECT_EQ(h.tokens[3].size(), 1u);
}

// Each form of an answer costs the ranks memory and time: those beyond 64 wait, others pass.
TEST(Scheduler, FormsThatDifferAreFew) {
  auto options = make_options();
  options.scheduler.max_num_seqs = 200;
  options.scheduler.max_num_batched_tokens = 4096;
  options.num_kv_blocks = 1000;
  Harness h(options);
  for (RequestId id = 1; id <= 102; ++id) {
    EngineRequest r = make_request(id, 5, id <= 2 ? 1 : 4);
    if (id <= 100) r.sampling.grammar = GrammarBytes("form " + std::to_string(id));
    if (id == 101) r.sampling.grammar = GrammarBytes("form 7");  // runs already
    h.scheduler.add(r);
  }
  EXPECT_EQ(h.step().scheduled.size(), 66u);  // 64 forms, 101 and 102
  EXPECT_EQ(h.scheduler.num_waiting(), 36);
  EXPECT_EQ(h.finished.size(), 2u);
  const SchedulerOutput next = h.step();
  ASSERT_EQ(next.new_requests.size(), 2u);  // two have ended, and two are let in
  EXPECT_EQ(next.new_requests[0].id, 65u);
  h.scheduler.restart();
  h.workers = FakeExecutor({}, h.workers.rule);
  EXPECT_EQ(h.step().scheduled.size(), 66u);
  h.scheduler.abort(3);
  h.collect();
  h.run_to_end();
  for (RequestId id = 4; id <= 102; ++id) EXPECT_EQ(h.tokens[id], expected_tokens(id, 4)) << id;
}

}  // namespace
}  // namespace tutti
