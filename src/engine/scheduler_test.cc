#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "engine/fake_executor.h"

namespace tutti {
namespace {

EngineRequest make_request(RequestId id, int prompt_tokens, int max_tokens, int first_token = 0) {
  EngineRequest r;
  r.id = id;
  r.prompt_token_ids.resize(static_cast<size_t>(prompt_tokens));
  std::iota(r.prompt_token_ids.begin(), r.prompt_token_ids.end(), first_token ? first_token : static_cast<int>(id) * 10000);
  r.sampling.max_tokens = max_tokens;
  return r;
}

Scheduler::Options make_options() {
  Scheduler::Options o;
  o.scheduler.max_num_batched_tokens = 64;
  o.scheduler.max_num_seqs = 8;
  o.scheduler.max_model_len = 4096;
  o.block_size = 16;
  o.num_kv_blocks = 64;
  return o;
}

// Runs steps one at a time against workers that check what they are told, and keeps all outputs.
struct Harness {
  explicit Harness(const Scheduler::Options& options)
      : scheduler(options), workers({}, [](RequestId id, int64_t i) { return static_cast<int32_t>(id * 100 + static_cast<uint64_t>(i)); }) {
    workers.block_size = options.block_size;
  }

  SchedulerOutput step() {
    SchedulerOutput s = scheduler.schedule();
    if (!s.scheduled.empty()) scheduler.update(workers.run(s));
    collect();
    return s;
  }
  void collect() {
    for (TokenOutput& o : scheduler.take_outputs()) {
      auto& tokens = this->tokens[o.id];
      tokens.insert(tokens.end(), o.token_ids.begin(), o.token_ids.end());
      if (o.finish_reason != FinishReason::kNone) finished[o.id] = o;
    }
    scheduler.check_invariants();
  }
  void run_to_end() {
    for (int i = 0; i < 10000 && scheduler.has_requests(); ++i) step();
    EXPECT_FALSE(scheduler.has_requests());
  }

  Scheduler scheduler;
  FakeExecutor workers;
  std::map<RequestId, std::vector<int32_t>> tokens;
  std::map<RequestId, TokenOutput> finished;
};

std::vector<int32_t> expected_tokens(RequestId id, int count) {
  std::vector<int32_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), static_cast<int32_t>(id) * 100);
  return all;
}

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

TEST(Scheduler, ChoicesOfOnePromptComputeItOnce) {
  auto options = make_options();
  options.scheduler.max_num_batched_tokens = 400;
  for (const bool caching : {true, false}) {
    options.enable_prefix_caching = caching;
    Harness h(options);
    for (RequestId id : {1, 2, 3, 4}) {
      EngineRequest r = make_request(id, 72, 5, 500);
      if (id > 1) r.same_prompt_as = 1;
      h.scheduler.add(r);
    }
    h.scheduler.add(make_request(9, 20, 5));  // is not held up by those that wait
    const SchedulerOutput s = h.step();
    EXPECT_EQ(s.num_tokens(), caching ? 72 + 20 : 4 * 72 + 20);
    if (caching) {
      EXPECT_EQ(h.step().num_tokens(), 2 + 3 * 8);
    }
    h.run_to_end();
    for (RequestId id : {1, 2, 3, 4, 9}) EXPECT_EQ(h.tokens[id], expected_tokens(id, 5));
  }
  // The one that computes may be gone.
  options.enable_prefix_caching = true;
  Harness h(options);
  for (RequestId id : {1, 2}) {
    EngineRequest r = make_request(id, 72, 5, 500);
    r.same_prompt_as = id - 1;
    h.scheduler.add(r);
  }
  h.scheduler.abort(1);
  h.run_to_end();
  EXPECT_EQ(h.tokens[2], expected_tokens(2, 5));
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
  for (RequestId id : {1, 2, 3}) h.scheduler.add(make_request(id, kTokens, 1, 5));
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
