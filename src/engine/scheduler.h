// Chooses which tokens the next step computes, and turns the step's answer into outputs. No prefill and no decode mode:
// every request owes tokens, a step pays within a budget, first those that owe one (decodes), then the rest in order of
// priority and arrival. Engine thread only; holds no tensor.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "config/engine_config.h"
#include "engine/kv_cache_manager.h"
#include "engine/request.h"

namespace tutti {

class Scheduler {
 public:
  struct Options {
    SchedulerConfig scheduler;
    int64_t block_size = 16;
    bool enable_prefix_caching = true;
    int64_t num_kv_blocks = 0;
    // A request may be scheduled again before its last sampled token is known here. Off with pipeline stages, whose
    // steps in flight hold different requests.
    bool look_ahead = true;
    int pipeline_stages = 1;
    int64_t smallest_piece = 128;  // prompt tokens that a step of a pipeline has at least, and at most
    int64_t largest_piece = std::numeric_limits<int64_t>::max();
    double kv_metrics_sample = 0.0;  // share of KV blocks whose times are kept
  };
  struct Counters {
    int64_t num_preemptions = 0;
    int64_t prompt_tokens = 0;
    int64_t generation_tokens = 0;
    int64_t prefix_cache_queries = 0;
    int64_t prefix_cache_hits = 0;
  };

  explicit Scheduler(const Options& options);
  ~Scheduler();

  // The request waits. One that can never run comes back as an output with kError from the next take_outputs().
  void add(EngineRequest spec);
  // Ends a request whatever its state; an unknown id is ignored (it has just finished).
  void abort(RequestId id, FinishReason reason = FinishReason::kAbort, const std::string& error = "");
  // Ends all.
  void abort_all(FinishReason reason, const std::string& error);

  // The next step; nothing scheduled when no request can make progress now. Steps are numbered from 1.
  SchedulerOutput schedule();
  // The answer to the oldest step that was scheduled.
  void update(const ModelRunnerOutput& output);
  // The workers have lost everything: all requests wait again, with the tokens they have; steps in flight are forgotten
  // and numbered from 1 again.
  void restart();
  // Of the requests that have a place: the one that came last.
  std::optional<RequestId> newest_running() const;
  // What has happened to requests since the last call.
  std::vector<TokenOutput> take_outputs();

  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  bool has_requests() const { return !requests_.empty(); }
  const Counters& counters() const { return counters_; }
  const BlockPool& pool() const { return kv_.pool(); }
  const KVBlockHistograms& block_times() const { return block_times_->histograms(); }
  // CHECKs that reference counts equal the holders among the requests.
  void check_invariants() const;

 private:
  // Waiting and running requests in the order of service.
  struct Rank {
    int32_t priority;
    uint64_t order;
    auto operator<=>(const Rank&) const = default;
  };
  struct InFlight {
    struct Part {
      RequestId id;
      int incarnation;
      int64_t computed;  // num_computed_tokens after the step
      bool samples;
    };
    int64_t step = 0;
    bool decodes = false;  // has rows of requests whose prompts are over
    std::vector<Part> parts;
  };
  struct Step;  // a step being put together
  struct BlocksInWork;

  Rank rank_of(const Request& request) const;
  Request* find(RequestId id);
  // Whether the request already has rows in the step being put together.
  bool placed(const Request& request) const { return request.last_step == next_step_; }
  bool can_advance(const Request& request) const;
  int64_t chunk(const Request& request, int64_t budget) const;
  int64_t pipeline_piece(const Step& step) const;
  bool waits_for_blocks(const Request& request);
  bool begins_to_wait(const BlocksInWork& in_work, Request& request, size_t cached) const;
  void fill(Step& step);
  void schedule_running(Step& step, bool decodes);
  void schedule_waiting(Step& step);
  bool make_room(Step& step, Request& request, int64_t num_tokens, std::vector<int32_t>* new_blocks);
  void preempt(Step& step, Request& request);
  bool may_bring_its_form(const Request& request) const;
  void start_running(Request& request);
  void stop_running(Request& request);
  void place(Step& step, Request& request, int64_t num_tokens, std::vector<int32_t> new_blocks);
  void expire();
  void confirm(Request& request, int64_t computed);
  void count_prompt(Request& request, int64_t computed);
  void collect_prompt_logprobs(Request& request, const SampledToken& sampled);
  bool append_token(Request& request, const SampledToken& sampled);
  void finish(Request& request, TokenOutput output);

  Options options_;
  std::unique_ptr<KVBlockTimes> block_times_;
  KVCacheManager kv_;
  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_;
  std::map<Rank, Request*> waiting_;
  std::map<Rank, Request*> running_;
  std::unordered_map<size_t, int64_t> forms_;  // of running requests with a grammar: how many have the same
  std::deque<InFlight> in_flight_;
  std::vector<RequestId> dropped_;
  std::vector<TokenOutput> outputs_;
  Counters counters_;
  int64_t next_step_ = 1;
  uint64_t next_order_ = 0;
  int64_t num_with_deadline_ = 0;
};

}  // namespace tutti
