// One rank: owns its part of the model, its KV cache and its threads, and runs the steps it is given. The process (or
// thread) that drives it calls load() once and then execute() for each step, always on one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/parallel_groups.h"
#include "config/engine_config.h"
#include "models/decoder.h"
#include "ops/context.h"
#include "protocol/step.h"
#include "runtime/kv_cache.h"
#include "runtime/model_runner.h"
#include "runtime/model_source.h"
#include "runtime/weight_loader.h"

namespace tutti {

// Who holds how much of this rank's memory.
struct MemoryReport {
  int64_t weights = 0;      // packed
  int64_t kv_cache = 0;     // reserved; pages that were never written cost nothing on a CPU
  int64_t activations = 0;  // reserved, likewise
  int64_t rotary = 0;
};

class Worker {
 public:
  // `rank` is that of the world; `groups` are its communicators. `ranks_on_node` share this machine's cores.
  Worker(EngineConfig engine, int rank, ParallelGroups groups, int ranks_on_node = 1);
  ~Worker();

  // Opens the model, reads this rank's weights and makes its KV cache. All ranks of the replica call it together: they
  // agree on the number of blocks. `source`, when given, is the model already open. Throws ConfigError, IoError,
  // DeviceError and CommError.
  void load(const LoadProgress& progress = {}, std::unique_ptr<ModelSource> source = nullptr);

  // Runs one step. The result has this rank's timing; `sampled` is filled on the last stage, with log-probabilities on
  // the output rank only.
  ModelRunnerOutput execute(const SchedulerOutput& step);

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
  void build_model();
  void make_cache();
  int64_t agree_on_minimum(int64_t value);

  EngineConfig engine_;
  int rank_;
  ParallelGroups groups_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Arena> arena_;
  Context ctx_;
  std::unique_ptr<ModelSource> source_;
  std::unique_ptr<DecoderModel> model_;
  std::unique_ptr<KVCache> cache_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<Range> vocab_;  // of each tensor-parallel rank
};

}  // namespace tutti
