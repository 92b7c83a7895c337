// The engine's loop: takes requests from other threads, asks the Scheduler for steps, keeps the Executor busy with one
// step of look-ahead, and hands out tokens. run() is the engine thread; the other public functions are thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/queue.h"
#include "config/engine_config.h"
#include "engine/engine_types.h"
#include "engine/executor.h"
#include "engine/kv_block_times.h"

namespace tutti {

// A snapshot for /metrics, /load and status.
struct EngineStats {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_used = 0;
  int64_t num_preemptions = 0;
  int64_t prompt_tokens = 0;       // computed or taken from the prefix cache
  int64_t generation_tokens = 0;
  int64_t prefix_cache_queries = 0;  // tokens looked up
  int64_t prefix_cache_hits = 0;     // tokens found
  int64_t steps = 0;
  double step_seconds = 0.0;         // sums over all steps, of the slowest rank
  double compute_seconds = 0.0;
  double comm_seconds = 0.0;
  double host_seconds = 0.0;         // scheduling and handing out
  int64_t comm_bytes = 0;
  double pp_comm_seconds = 0.0;      // of the above, between pipeline stages
  int64_t pp_comm_bytes = 0;
  double bubble_seconds = 0.0;       // of step_seconds, what a rank waited for another stage or a step, on average
  int slowest_rank = 0;              // of the last step
  KVBlockHistograms kv_block_times;  // of a sample of blocks, with --kv-cache-metrics
  bool healthy = true;
  std::string error;                 // why not
};

class Scheduler;

class EngineCore {
 public:
  using OutputSink = std::function<void(std::vector<TokenOutput>)>;

  // `sink` is called on the engine thread after every step that gave outputs, and when the engine has failed, whether or
  // not anybody waits for one; it must not block.
  // `eos_token_ids` end a request unless it ignores them.
  EngineCore(const EngineConfig& config, std::vector<int32_t> eos_token_ids, Executor& executor, OutputSink sink);
  ~EngineCore();

  // Until stop() or drain() has ended it. When the executor fails and cannot recover, every request ends with kError and
  // its message.
  void run();

  // False when the queue is full or the engine is stopping or broken: the caller answers 429 or 503.
  bool add_request(EngineRequest request);
  void abort(RequestId id);

  // No new requests; run() returns when all have ended.
  void drain();
  // run() returns after the steps in flight; requests end with kAbort.
  void stop();

  EngineStats stats() const;

 private:
  struct Command;
  void take_commands(Deadline deadline);
  void apply(Command& command);
  void step();
  void hand_out();
  void fail(const std::string& message);
  bool recover(const std::string& message);
  void finish_run();
  void record(const ModelRunnerOutput& output, Clock::time_point begin, Clock::time_point end);
  void publish_stats();

  const EngineConfig config_;
  const std::vector<int32_t> eos_token_ids_;
  Executor& executor_;
  const OutputSink sink_;
  const int max_steps_in_flight_;
  Queue<Command> commands_;
  std::atomic<int64_t> num_queued_{0};  // waiting and not yet taken in, for the bound
  std::atomic<bool> draining_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> broken_{false};

  // Engine thread only.
  std::unique_ptr<Scheduler> scheduler_;
  int steps_in_flight_ = 0;
  int losses_in_a_row_ = 0;  // of ranks, without a token between them
  int64_t steps_ = 0;
  double step_seconds_ = 0.0;
  double compute_seconds_ = 0.0;
  double comm_seconds_ = 0.0;
  double host_seconds_ = 0.0;
  int64_t comm_bytes_ = 0;
  double pp_comm_seconds_ = 0.0;
  int64_t pp_comm_bytes_ = 0;
  double bubble_seconds_ = 0.0;
  int slowest_rank_ = 0;

  mutable std::mutex stats_mutex_;
  EngineStats stats_;
};

}  // namespace tutti
