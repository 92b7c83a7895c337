// An executor for tests: no ranks, tokens by a rule, every step kept for inspection.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "engine/executor.h"

namespace tutti {

class FakeExecutor : public Executor {
 public:
  // `rule(id, index)` is the token sampled for output number `index` of a request.
  using Rule = std::function<int32_t(RequestId id, int64_t index)>;

  FakeExecutor(ExecutorInfo info, Rule rule_in) : rule(std::move(rule_in)), info_(info) {}

  ExecutorInfo info() const override { return info_; }

  void submit(const SchedulerOutput& step) override {
    if (fail_at_step > 0 && step.step >= fail_at_step) throw CommError("rank 1 is lost");
    CHECK_EQ(step.step, last_step_ + 1);
    last_step_ = step.step;
    steps.push_back(step);
    answers_.push_back(run(step));
  }

  ModelRunnerOutput wait(Deadline) override {
    CHECK(!answers_.empty());
    ModelRunnerOutput answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }

  bool ready() const override { return !answers_.empty(); }

  bool recover(const std::string&) override {
    if (!can_recover) return false;
    fail_at_step = 0;
    last_step_ = 0;
    known_.clear();
    answers_.clear();
    return true;
  }

  // What workers would do: keep state, refuse what they do not know, sample where asked.
  ModelRunnerOutput run(const SchedulerOutput& step) {
    for (RequestId id : step.dropped) CHECK_EQ(known_.erase(id), 1u);
    for (const NewRequestData& r : step.new_requests) {
      CHECK(known_.emplace(r.id, State{static_cast<int64_t>(r.token_ids.size()), r.num_prompt_tokens, 0}).second);
    }
    ModelRunnerOutput output{.step = step.step, .timings = {StepTiming{.rank = 0, .total_us = 1, .compute_us = 1}}};
    for (const ScheduledRequest& s : step.scheduled) {
      State& state = known_.at(s.id);
      state.num_blocks += static_cast<int64_t>(s.new_block_ids.size());
      const int64_t end = s.num_computed_tokens + s.num_tokens;
      CHECK_LE(end, state.num_tokens);
      CHECK_LE(end, state.num_blocks * block_size);
      CHECK_EQ(s.samples, end == state.num_tokens);
      if (!s.samples) continue;
      output.sampled.push_back({.id = s.id, .token_id = rule(s.id, state.num_tokens - state.num_prompt_tokens)});
      ++state.num_tokens;
    }
    return output;
  }

  std::vector<SchedulerOutput> steps;
  int64_t fail_at_step = 0;
  bool can_recover = false;
  int64_t block_size = 16;
  Rule rule;

 private:
  struct State {
    int64_t num_tokens;
    int64_t num_prompt_tokens;
    int64_t num_blocks;
  };

  ExecutorInfo info_;
  int64_t last_step_ = 0;
  std::map<RequestId, State> known_;
  std::deque<ModelRunnerOutput> answers_;
};

}  // namespace tutti
