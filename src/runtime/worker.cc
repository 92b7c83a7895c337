#include "runtime/worker.h"

#include <algorithm>
#include <thread>

#include "base/deadline.h"
#include "base/error.h"
#include "models/generation_config.h"
#include "models/stage_partition.h"
#include "runtime/rank_memory.h"

namespace tutti {
namespace {

int threads_of_rank(int asked, int ranks_on_node) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return asked > 0 ? asked : std::max(1, cores / ranks_on_node);
}

std::unique_ptr<ThreadPool> make_pool(int asked, int ranks_on_node) {
  const int threads = threads_of_rank(asked, ranks_on_node);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int spin_us = threads * ranks_on_node > cores ? 0 : 50;
  return std::make_unique<ThreadPool>(threads, spin_us);
}

// Model end-of-text ids of the configuration and of generation_config.json.
std::vector<int32_t> all_eos_token_ids(const ModelConfig& config, const std::string& path) {
  std::vector<int32_t> ids = config.eos_token_ids;
  for (int32_t id : read_generation_config(path).eos_token_ids) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

float microseconds(Clock::duration duration) { return std::chrono::duration<float, std::micro>(duration).count(); }

}  // namespace

Worker::Worker(EngineConfig engine, int rank, ParallelGroups groups, int ranks_on_node)
    : engine_(std::move(engine)), rank_(rank), groups_(std::move(groups)), pool_(make_pool(engine_.cpu_threads, ranks_on_node)) {
  CHECK_EQ(groups_.tp->size(), engine_.parallel.tensor_parallel_size);
  CHECK_EQ(groups_.pp->size(), engine_.parallel.pipeline_parallel_size);
  ctx_.pool = pool_.get();
}

Worker::~Worker() = default;

void Worker::load(const LoadProgress& progress, std::unique_ptr<ModelSource> source) {
  source_ = source ? std::move(source) : std::make_unique<ModelSource>(open_model(engine_));
  if (engine_.scheduler.max_model_len <= 0) engine_.scheduler.max_model_len = source_->config.max_position_embeddings;
  build_model();
  load_weights(*source_, ctx_, model_->parameters(), progress);
  make_cache();
  arena_ = std::make_unique<Arena>(activation_bytes(*model_, engine_.scheduler, groups_.tp->size()), ctx_.device);
  ctx_.arena = arena_.get();
  runner_ = std::make_unique<ModelRunner>(ctx_, *model_, *cache_, *groups_.tp, *groups_.pp, vocab_,
                                          all_eos_token_ids(source_->config, source_->path), engine_.seed);
}

void Worker::build_model() {
  const ModelConfig& config = source_->config;
  const RankCoordinates at = engine_.parallel.coordinates(rank_);
  const QuantBlocks blocks = source_->quant_blocks();
  vocab_.clear();
  for (int r = 0; r < engine_.parallel.tensor_parallel_size; ++r) {
    vocab_.push_back(partition_tensors(config, engine_.parallel, r, blocks).vocab);
  }
  const LayerRange range = partition_layers(config, engine_.parallel)[static_cast<size_t>(at.pp)];
  model_ = std::make_unique<DecoderModel>(config, partition_tensors(config, engine_.parallel, at.tp, blocks), *groups_.tp,
                                          range, engine_.scheduler.max_model_len);
}

void Worker::make_cache() {
  const KVCacheShape shape = kv_cache_shape(*model_, engine_.cache, ctx_.device);
  const int64_t blocks = choose_num_blocks(shape, engine_.cache, engine_.scheduler);
  cache_ = std::make_unique<KVCache>(shape, agree_on_minimum(blocks), ctx_.device);
}

// Over all ranks of the replica: along the tensor-parallel groups, then along the pipeline.
int64_t Worker::agree_on_minimum(int64_t value) {
  for (Communicator* group : {groups_.tp.get(), groups_.pp.get()}) {
    std::vector<int64_t> all(static_cast<size_t>(group->size()));
    group->all_gather(&value, all.data(), sizeof value);
    value = *std::min_element(all.begin(), all.end());
  }
  return value;
}

ModelRunnerOutput Worker::execute(const SchedulerOutput& step) {
  const auto start = Clock::now();
  const auto comm = [&] {
    const CommStats tp = groups_.tp->stats();
    const CommStats pp = groups_.pp->stats();
    return CommStats{tp.calls + pp.calls, tp.bytes + pp.bytes, tp.seconds + pp.seconds};
  };
  const CommStats before = comm();
  ModelRunnerOutput output;
  output.step = step.step;
  output.sampled = runner_->run(step);
  const CommStats after = comm();
  StepTiming timing;
  timing.rank = rank_;
  timing.total_us = microseconds(Clock::now() - start);
  timing.comm_us = static_cast<float>((after.seconds - before.seconds) * 1e6);
  timing.compute_us = std::max(0.0f, timing.total_us - timing.comm_us);
  timing.comm_bytes = after.bytes - before.bytes;
  output.timings.push_back(timing);
  return output;
}

int Worker::output_rank(const ParallelConfig& parallel) {
  return parallel.rank({0, parallel.pipeline_parallel_size - 1, 0});
}

bool Worker::is_output_rank() const {
  const RankCoordinates at = engine_.parallel.coordinates(rank_);
  return at.tp == 0 && at.pp == engine_.parallel.pipeline_parallel_size - 1;
}

MemoryReport Worker::memory() const {
  MemoryReport report;
  for (const ParameterSlot& slot : model_->parameters().slots()) {
    report.weights += static_cast<int64_t>(slot.matrix != nullptr ? slot.matrix->bytes() : slot.vector->bytes());
  }
  report.kv_cache = cache_->bytes();
  report.activations = static_cast<int64_t>(arena_->capacity());
  report.rotary = rotary_bytes(source_->config, engine_.scheduler.max_model_len);
  return report;
}

void Worker::abort(const std::string& reason) {
  for (Communicator* group : {groups_.world.get(), groups_.tp.get(), groups_.pp.get()}) {
    if (group != nullptr) group->abort(reason);
  }
}

}  // namespace tutti
