// A scheduler with workers that check what they are told, for tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <vector>

#include "engine/fake_executor.h"
#include "engine/scheduler.h"

namespace tutti {

inline EngineRequest make_request(RequestId id, int prompt_tokens, int max_tokens, int first_token = 0) {
  EngineRequest r;
  r.id = id;
  r.prompt_token_ids.resize(static_cast<size_t>(prompt_tokens));
  std::iota(r.prompt_token_ids.begin(), r.prompt_token_ids.end(), first_token ? first_token : static_cast<int>(id) * 10000);
  r.sampling.max_tokens = max_tokens;
  return r;
}

inline Scheduler::Options make_options() {
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

inline std::vector<int32_t> expected_tokens(RequestId id, int count) {
  std::vector<int32_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), static_cast<int32_t>(id) * 100);
  return all;
}

}  // namespace tutti
