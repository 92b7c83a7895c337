#include "engine/engine_core.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/scheduler.h"

namespace tutti {
namespace {

// The last resort against a silent executor; ranks and links have far shorter deadlines of their own.
constexpr auto kStepTimeout = std::chrono::seconds(300);
// How long an idle engine sleeps before it looks at drain and stop again.
constexpr auto kIdleWait = std::chrono::milliseconds(100);
// So many losses of ranks without a token between them are one request's fault, most likely that which came last.
constexpr int kMostLosses = 3;
constexpr const char* kShuttingDown = "the server is shutting down";

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Prompt tokens that a step of a pipeline has at least: below it a token costs more. A piece that is long beside the steps of the
// other requests holds them up in every stage, and stages before it idle.
constexpr int64_t kCpuPiece = 32, kGpuPiece = 128;
constexpr int64_t kLargestCpuPiece = 128;  // above it a token costs no less

Scheduler::Options scheduler_options(const EngineConfig& config, const ExecutorInfo& info) {
  return {.scheduler = config.scheduler,
          .block_size = config.cache.block_size,
          .enable_prefix_caching = config.cache.enable_prefix_caching,
          .num_kv_blocks = info.num_kv_blocks,
          .look_ahead = info.pipeline_stages == 1 && info.max_steps_in_flight > 1,
          .pipeline_stages = info.pipeline_stages,
          .smallest_piece = config.device == "cpu" ? kCpuPiece : kGpuPiece,
          .largest_piece = config.device == "cpu" ? kLargestCpuPiece : std::numeric_limits<int64_t>::max(),
          .kv_metrics_sample = config.cache.kv_cache_metrics ? config.cache.kv_cache_metrics_sample : 0.0};
}

}  // namespace

struct EngineCore::Command {
  std::optional<EngineRequest> add;
  RequestId abort = 0;
};

EngineCore::EngineCore(const EngineConfig& config, std::vector<int32_t> eos_token_ids, Executor& executor, OutputSink sink)
    : config_(config),
      eos_token_ids_(std::move(eos_token_ids)),
      executor_(executor),
      sink_(std::move(sink)),
      max_steps_in_flight_(executor.info().max_steps_in_flight),
      scheduler_(std::make_unique<Scheduler>(scheduler_options(config, executor.info()))) {
  publish_stats();
}

EngineCore::~EngineCore() = default;

bool EngineCore::add_request(EngineRequest request) {
  if (draining_ || stopping_ || broken_) return false;
  if (num_queued_.load() >= config_.scheduler.max_queue_size) return false;
  ++num_queued_;
  if (!request.sampling.ignore_eos) {
    auto& stops = request.sampling.stop_token_ids;
    stops.insert(stops.end(), eos_token_ids_.begin(), eos_token_ids_.end());
  }
  return commands_.push(Command{.add = std::move(request)});
}

void EngineCore::abort(RequestId id) { commands_.push(Command{.abort = id}); }

void EngineCore::drain() { draining_ = true; }

void EngineCore::stop() { stopping_ = true; }

void EngineCore::apply(Command& command) {
  if (command.add) {
    if (broken_) {
      sink_({TokenOutput{.id = command.add->id, .finish_reason = FinishReason::kError, .error = stats().error}});
    } else if (stopping_) {
      sink_({TokenOutput{.id = command.add->id, .finish_reason = FinishReason::kAbort, .error = kShuttingDown}});
    } else {
      scheduler_->add(std::move(*command.add));
    }
  } else {
    scheduler_->abort(command.abort);
  }
}

void EngineCore::take_commands(Deadline deadline) {
  auto command = commands_.pop(deadline);
  while (command) {
    apply(*command);
    command = commands_.try_pop();
  }
  num_queued_ = scheduler_->num_waiting() + static_cast<int64_t>(commands_.size());
}

void EngineCore::run() {
  while (!stopping_) {
    const bool idle = !scheduler_->has_requests() && steps_in_flight_ == 0;
    if (idle && draining_ && commands_.size() == 0) break;
    take_commands(Deadline::after(idle ? std::chrono::nanoseconds(kIdleWait) : std::chrono::nanoseconds(0)));
    try {
      step();
    } catch (const CommError& e) {
      if (!recover(e.what())) fail(e.what());
    } catch (const std::exception& e) {  // also what the library throws: a client must not wait for nothing
      fail(e.what());
    }
    hand_out();
  }
  finish_run();
}

// One turn: keep the executor's queue full, then take the oldest answer.
void EngineCore::step() {
  const auto begin = Clock::now();
  while (!broken_ && steps_in_flight_ < max_steps_in_flight_) {
    SchedulerOutput next = scheduler_->schedule();
    if (next.scheduled.empty()) break;
    executor_.submit(next);
    ++steps_in_flight_;
  }
  const auto submitted = Clock::now();
  host_seconds_ += seconds_between(begin, submitted);
  if (steps_in_flight_ == 0) {
    // An idle engine notices a lost cluster before the next request does.
    if (!broken_ && executor_.ready()) executor_.wait(Deadline::after(std::chrono::nanoseconds(0)));
    return;
  }
  const ModelRunnerOutput output = executor_.wait(Deadline::after(kStepTimeout));
  --steps_in_flight_;
  const auto answered = Clock::now();
  scheduler_->update(output);
  if (!output.sampled.empty()) losses_in_a_row_ = 0;
  host_seconds_ += seconds_between(answered, Clock::now());
  record(output, begin, answered);
}

void EngineCore::hand_out() {
  auto outputs = scheduler_->take_outputs();
  publish_stats();
  if (!outputs.empty()) sink_(std::move(outputs));
}

// The cluster is lost: nobody waits for an answer that cannot come.
void EngineCore::fail(const std::string& message) {
  broken_ = true;
  steps_in_flight_ = 0;
  {
    std::lock_guard lock(stats_mutex_);
    stats_.healthy = false;
    stats_.error = message;
  }
  scheduler_->abort_all(FinishReason::kError, message);
  publish_stats();
  auto outputs = scheduler_->take_outputs();
  const auto ended = std::count_if(outputs.begin(), outputs.end(), [](const auto& o) { return o.finish_reason == FinishReason::kError; });
  log::error("{}. {} open request{} with this error", message, ended == 0 ? "No" : std::to_string(ended), ended == 1 ? " ends" : "s end");
  sink_(std::move(outputs));
}

// The ranks are back, empty: all requests go on from the tokens they have.
bool EngineCore::recover(const std::string& message) {
  if (broken_ || stopping_) return false;
  hand_out();
  if (!executor_.recover(message)) return false;
  steps_in_flight_ = 0;
  const std::optional<RequestId> newest = scheduler_->newest_running();
  scheduler_->restart();
  if (++losses_in_a_row_ < kMostLosses || !newest) return true;
  const std::string error = "ranks were lost " + std::to_string(losses_in_a_row_) + " times before a token came, last: " + message;
  log::warning("{}. The request that came last ends with this error, the others are tried again", error);
  scheduler_->abort(*newest, FinishReason::kError, error);
  return true;
}

void EngineCore::finish_run() {
  while (steps_in_flight_ > 0 && !broken_) {
    try {
      scheduler_->update(executor_.wait(Deadline::after(kStepTimeout)));
      --steps_in_flight_;
    } catch (const std::exception& e) {
      fail(e.what());
    }
  }
  stopping_ = true;
  commands_.close();  // from here on requests are refused; those that came before are in the queue, and are told
  take_commands(Deadline::after(std::chrono::nanoseconds(0)));
  scheduler_->abort_all(FinishReason::kAbort, kShuttingDown);
  hand_out();
}

void EngineCore::record(const ModelRunnerOutput& output, Clock::time_point begin, Clock::time_point end) {
  ++steps_;
  step_seconds_ += seconds_between(begin, end);
  const auto slowest = std::max_element(output.timings.begin(), output.timings.end(), [](const auto& a, const auto& b) {
    return a.compute_us < b.compute_us;
  });
  if (slowest == output.timings.end()) return;
  slowest_rank_ = slowest->rank;
  compute_seconds_ += slowest->compute_us * 1e-6;
  comm_seconds_ += slowest->comm_us * 1e-6;
  comm_bytes_ += slowest->comm_bytes;
  pp_comm_seconds_ += slowest->pp_comm_us * 1e-6;
  pp_comm_bytes_ += slowest->pp_comm_bytes;
  double busy = 0.0;
  for (const StepTiming& t : output.timings) busy += (t.total_us - t.pp_comm_us) * 1e-6;
  bubble_seconds_ += seconds_between(begin, end) - busy / static_cast<double>(output.timings.size());
}

void EngineCore::publish_stats() {
  const Scheduler::Counters& counters = scheduler_->counters();
  std::lock_guard lock(stats_mutex_);
  stats_.num_running = scheduler_->num_running();
  stats_.num_waiting = scheduler_->num_waiting();
  stats_.kv_blocks_total = scheduler_->pool().num_blocks();
  stats_.kv_blocks_used = scheduler_->pool().num_used();
  stats_.num_preemptions = counters.num_preemptions;
  stats_.prompt_tokens = counters.prompt_tokens;
  stats_.generation_tokens = counters.generation_tokens;
  stats_.prefix_cache_queries = counters.prefix_cache_queries;
  stats_.prefix_cache_hits = counters.prefix_cache_hits;
  if (config_.cache.kv_cache_metrics) stats_.kv_block_times = scheduler_->block_times();
  stats_.steps = steps_;
  stats_.step_seconds = step_seconds_;
  stats_.compute_seconds = compute_seconds_;
  stats_.comm_seconds = comm_seconds_;
  stats_.host_seconds = host_seconds_;
  stats_.comm_bytes = comm_bytes_;
  stats_.pp_comm_seconds = pp_comm_seconds_;
  stats_.pp_comm_bytes = pp_comm_bytes_;
  stats_.bubble_seconds = std::max(0.0, bubble_seconds_);
  stats_.slowest_rank = slowest_rank_;
}

EngineStats EngineCore::stats() const {
  std::lock_guard lock(stats_mutex_);
  return stats_;
}

}  // namespace tutti
