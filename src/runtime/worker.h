// One rank: owns its part of the model, its KV cache, its threads and its GPU, and runs the steps it is given. The process
// (or thread) that drives it calls load() once and then execute() for each step, or start() and finish() to have a GPU
// begin a step before the one before it has ended; always on one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "comm/parallel_groups.h"
#include "config/engine_config.h"
#include "models/decoder.h"
#include "ops/context.h"
#include "ops/cuda_context.h"
#include "protocol/step.h"
#include "runtime/kv_cache.h"
#include "runtime/model_runner.h"
#include "runtime/model_source.h"
#include "runtime/step_clock.h"
#include "runtime/weight_loader.h"

namespace tutti {

// Who holds how much of this rank's memory.
struct MemoryReport {
  int64_t weights = 0;      // packed
  int64_t kv_cache = 0;     // reserved; pages that were never written cost nothing on a CPU
  int64_t activations = 0;  // reserved, likewise
  int64_t rotary = 0;
  int64_t graphs = 0;       // GPUs: as measured
  int64_t other = 0;        // GPUs: the driver's context, libraries' workspaces, a step's inputs
};

// Makes the communicators of the ranks' GPUs, whose calls are queued on `stream`; only tp and pp are used.
using MakeDeviceGroups = std::function<ParallelGroups(Device device, void* stream)>;

// Called when a rank has done its part of a phase of load(): "device", "links" (GPUs only), "weights", "kernels" (GPUs only),
// "cache". All ranks have done theirs before the next phase begins.
using PhaseDone = std::function<void(const char* phase)>;

class Worker {
 public:
  // `rank` is that of the world; `groups` are its communicators. `ranks_on_node` share this machine's cores and GPUs, and
  // this one is number `local_rank` among them.
  Worker(EngineConfig engine, int rank, ParallelGroups groups, int ranks_on_node = 1, int local_rank = 0);
  ~Worker();

  // Before load(), where several ranks run on GPUs.
  void set_device_groups(MakeDeviceGroups make) { make_device_groups_ = std::move(make); }
  // Before load(), where requests may have grammars. Called on this worker's thread, during its first step with one.
  void set_vocabulary(VocabularySource source) { vocabulary_ = std::move(source); }
  void on_phase(PhaseDone done) { phase_done_ = std::move(done); }

  // Opens the model, reads this rank's weights and makes its KV cache. All ranks of the replica call it together: they
  // agree on the number of blocks. `source`, when given, is the model already open. Throws ConfigError, IoError,
  // DeviceError and CommError.
  void load(const LoadProgress& progress = {}, std::unique_ptr<ModelSource> source = nullptr);

  // Runs one step. The result has this rank's timing; `sampled` is filled on the last stage, with log-probabilities on
  // the output rank only.
  ModelRunnerOutput execute(const SchedulerOutput& step);
  // The same in two halves. At most ModelRunner::kMaxStarted steps may be started and not finished; finish() is for the
  // oldest, and returns at once when ready().
  void start(const SchedulerOutput& step);
  ModelRunnerOutput finish();
  bool ready() const { return runner_->ready(); }
  size_t num_started() const { return runner_->num_started(); }
  // GPUs, for benchmarks: microseconds without a kernel before each step from here on.
  void measure_gpu_idle(bool on) { runner_->measure_idle(on); }
  const std::vector<float>& gpu_idle_us() const { return runner_->idle_us(); }

  // The rank whose answers the engine wants: the first of the last stage.
  bool is_output_rank() const;
  static int output_rank(const ParallelConfig& parallel);

  int rank() const { return rank_; }
  const ModelConfig& model_config() const { return source_->config; }
  const DecoderModel& model() const { return *model_; }
  int64_t num_kv_blocks() const { return cache_->num_blocks(); }
  MemoryReport memory() const;
  // Frees a rank that waits for others, with this reason. Any thread.
  void abort(const std::string& reason);

 private:
  void open_device();
  void end_phase(const char* phase);
  void build_model();
  void make_cache(int64_t available);
  void prepare_gpu();
  std::unique_ptr<ModelRunner> make_runner();
  RunnerParts parts() const;
  const ParallelGroups& tensor_groups() const;
  int ranks_on_gpu() const;
  struct GroupStats {
    CommStats tp;
    CommStats pp;
  };
  struct Begun {
    int64_t step;
    int64_t rows;  // of all steps that may be in flight
    Clock::time_point at;
    GroupStats comm;
  };
  GroupStats comm_stats() const;
  template <typename Body>
  void in_step(const Begun& begun, const Body& body);
  void watch_groups();
  int64_t agree_on_minimum(int64_t value);

  EngineConfig engine_;
  int rank_;
  int local_rank_;
  int ranks_on_node_;
  ParallelGroups groups_;
  MakeDeviceGroups make_device_groups_;
  PhaseDone phase_done_;
  VocabularySource vocabulary_;
  std::shared_ptr<CudaContext> cuda_;
  ParallelGroups device_groups_;  // of activations, on GPUs; else empty
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Arena> arena_;
  Context ctx_;
  std::unique_ptr<ModelSource> source_;
  std::unique_ptr<DecoderModel> model_;
  std::unique_ptr<KVCache> cache_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<StepClock> clock_;
  std::vector<Range> vocab_;  // of each tensor-parallel rank
  int64_t graph_bytes_ = 0;

  std::deque<Begun> begun_;
  std::deque<int64_t> recent_rows_;
  Clock::time_point finished_{};  // the step before
};

}  // namespace tutti
