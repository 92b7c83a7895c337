#include "runtime/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <thread>

#include "base/cpu_cores.h"
#include "base/error.h"
#include "base/log.h"
#include "models/generation_config.h"
#include "models/stage_partition.h"
#include "ops/cpu/isa.h"
#include "ops/kernel_table.h"
#include "runtime/kernel_choice_file.h"
#include "runtime/rank_memory.h"
#include "tensor/device_memory.h"

namespace tutti {
namespace {

int threads_of_rank(int asked, int ranks_on_node) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return asked > 0 ? asked : std::max(1, cores / ranks_on_node);
}

// VLLM_CPU_OMP_THREADS_BIND: "auto" gives each thread a core of its own, a rank's threads to one memory node where they fit;
// "0-3|4-7" names the processors of each rank of this node; "nobind", or nothing, leaves threads where the system puts them.
std::vector<int> processors_of_threads(int threads, int local_rank) {
  const char* value = std::getenv("VLLM_CPU_OMP_THREADS_BIND");
  const std::string bind = value == nullptr || *value == '\0' ? "nobind" : value;
  if (bind == "nobind") return {};
  const std::vector<int> usable = usable_processors_by_node();
  std::vector<int> mine;
  if (bind == "auto") {
    mine = processors_of_group(local_rank, threads);
  } else {
    std::istringstream parts(bind);
    std::string part;
    for (int i = 0; i <= local_rank; ++i) std::getline(parts, part, '|');
    if (parts) mine = parse_cpu_list(part);
  }
  const auto is_usable = [&](int cpu) { return std::find(usable.begin(), usable.end(), cpu) != usable.end(); };
  if (static_cast<int>(mine.size()) < threads || !std::all_of(mine.begin(), mine.end(), is_usable)) {
    throw ConfigError("VLLM_CPU_OMP_THREADS_BIND=" + bind + ": rank " + std::to_string(local_rank) + " of this node has " +
                      std::to_string(threads) + " threads (--cpu-threads) and needs as many of the " + std::to_string(usable.size()) +
                      " processors that this process may use: name them, or choose auto or nobind");
  }
  return mine;
}

std::unique_ptr<ThreadPool> make_pool(int asked, int ranks_on_node, int local_rank) {
  const int threads = threads_of_rank(asked, ranks_on_node);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int spin_us = threads * ranks_on_node > cores ? 0 : 1000;
  auto pool = std::make_unique<ThreadPool>(threads, spin_us);
  if (const auto processors = processors_of_threads(threads, local_rank); !processors.empty()) {
    pool->run([&](int thread) { pin_thread(processors[static_cast<size_t>(thread)]); });
  }
  return pool;
}

// Model end-of-text ids of the configuration and of generation_config.json.
std::vector<int32_t> all_eos_token_ids(const ModelConfig& config, const std::string& path) {
  std::vector<int32_t> ids = config.eos_token_ids;
  for (int32_t id : read_generation_config(path).eos_token_ids) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

// Left to what grows after the cache is made: library workspaces, fragments.
constexpr int64_t kGpuSlackBytes = int64_t{256} << 20;

// How long a rank waits for others that still load, and for their part of a step that chooses kernels.
constexpr auto kLoadPatience = std::chrono::minutes(30);
constexpr auto kRehearsalPatience = std::chrono::seconds(60);

// Steps of this many rows, twice as many and so on are rehearsed up to the full budget.
constexpr int64_t kFewestPromptRows = 512;

// Weights that one token meets in all stages.
double weights_of_token(const ModelConfig& config) {
  const StageCosts costs = stage_costs(config);
  return config.num_layers * costs.layer + costs.embedding + costs.head;
}

float microseconds(Clock::duration duration) { return std::chrono::duration<float, std::micro>(duration).count(); }

}  // namespace

Worker::Worker(EngineConfig engine, int rank, ParallelGroups groups, int ranks_on_node, int local_rank)
    : engine_(std::move(engine)),
      rank_(rank),
      local_rank_(local_rank),
      ranks_on_node_(ranks_on_node),
      groups_(std::move(groups)),
      pool_(make_pool(engine_.cpu_threads, ranks_on_node, local_rank)) {
  CHECK_EQ(groups_.tp->size(), engine_.parallel.tensor_parallel_size);
  CHECK_EQ(groups_.pp->size(), engine_.parallel.pipeline_parallel_size);
  ctx_.pool = pool_.get();
  if (!engine_.cpu_level.empty()) ctx_.kernels = &cpu::kernel_table_of_level(engine_.cpu_level);
}

Worker::~Worker() = default;

void Worker::load(const LoadProgress& progress, std::unique_ptr<ModelSource> source) {
  source_ = source ? std::move(source) : std::make_unique<ModelSource>(open_model(engine_));
  if (engine_.scheduler.max_model_len <= 0) engine_.scheduler.max_model_len = source_->config.max_position_embeddings;
  if (source_->gpu_activations) open_device();
  build_model();
  {
    const cuda::Holder holder("weights");
    load_weights(*source_, ctx_, model_->parameters(), progress);
    if (cuda_ != nullptr) end_upload(*cuda_);
  }
  end_phase("weights");
  const cuda::Holder holder("activations");
  arena_ = std::make_unique<Arena>(activation_bytes(*model_, engine_.scheduler, groups_.tp->size(), ctx_.activations), ctx_.device);
  ctx_.arena = arena_.get();
  clock_ = std::make_unique<StepClock>(weights_of_token(source_->config), engine_.collective_timeout_s);
  if (ctx_.device.is_cpu()) {
    make_cache(kDefaultCpuCacheBytes);
    runner_ = make_runner();
  } else {
    prepare_gpu();
  }
  end_phase("cache");
}

// Ranks load at different speeds: whoever is done waits here, not in a collective, whose deadline is short.
void Worker::end_phase(const char* phase) {
  if (phase_done_) phase_done_(phase);
  if (groups_.world == nullptr) return;
  groups_.world->set_timeout(kLoadPatience);
  groups_.world->barrier();
}

int Worker::ranks_on_gpu() const {
  const int gpus = std::max(1, cuda::device_count());
  return (ranks_on_node_ + gpus - 1) / gpus;
}

void Worker::open_device() {
  const int gpus = cuda::device_count();
  ctx_.device = Device::cuda(gpus > 0 ? local_rank_ % gpus : 0);
  ctx_.activations = *source_->gpu_activations;
  cuda_ = make_cuda_context(ctx_.device, ctx_.activations,
                            {.batch_invariant = engine_.batch_invariant, .fp8_weight_only = engine_.fp8_weight_only});
  ctx_.cuda = cuda_.get();
  if (groups_.tp->size() > 1 || groups_.pp->size() > 1) {
    if (!make_device_groups_) throw ConfigError("several ranks on GPUs need communicators between them: use --device cpu, or one rank");
    end_phase("device");
    device_groups_ = make_device_groups_(ctx_.device, cuda_stream(*cuda_));
    for (Communicator* group : {device_groups_.tp.get(), device_groups_.pp.get()}) group->set_timeout(kRehearsalPatience);
    end_phase("links");
  }
  const DType cache = kv_cache_dtype(engine_.cache.kv_cache_dtype, ctx_.activations);
  require_kernel(kernel_table(ctx_), Op::kAttention, cache);
  if (cache != ctx_.activations && cache != DType::kF8E4M3) {
    throw ConfigError("--kv-cache-dtype " + engine_.cache.kv_cache_dtype + " with activations in " + std::string(dtype_name(ctx_.activations)) +
                      ": a GPU keeps them in the activations' type or in fp8: leave it out, give fp8, or give --dtype");
  }
  const cuda::DeviceMemory memory = cuda::device_memory(ctx_.device);
  const auto usable = static_cast<int64_t>(static_cast<double>(memory.total) * engine_.cache.gpu_memory_utilization) / ranks_on_gpu();
  check_fits(*source_, engine_, {rank_}, std::min(usable, static_cast<int64_t>(memory.free)), cuda::other_processes(ctx_.device));
}

void Worker::build_model() {
  const ModelConfig& config = source_->config;
  const RankCoordinates at = engine_.parallel.coordinates(rank_);
  const QuantBlocks blocks = source_->quant_blocks();
  vocab_.clear();
  for (int r = 0; r < engine_.parallel.tensor_parallel_size; ++r) {
    vocab_.push_back(partition_tensors(config, engine_.parallel, r, blocks, output_cut(engine_)).vocab);
  }
  const LayerRange range = partition_layers(config, engine_.parallel)[static_cast<size_t>(at.pp)];
  const cuda::Holder holder("position tables");
  model_ = std::make_unique<DecoderModel>(config, partition_tensors(config, engine_.parallel, at.tp, blocks, output_cut(engine_)),
                                          *tensor_groups().tp, range, engine_.scheduler.max_model_len, ctx_.device);
}

const ParallelGroups& Worker::tensor_groups() const { return device_groups_.tp != nullptr ? device_groups_ : groups_; }

RunnerParts Worker::parts() const {
  const ParallelGroups& tensors = tensor_groups();
  return {ctx_, *model_, *cache_, *groups_.tp, *groups_.pp, *tensors.tp, *tensors.pp};
}

std::unique_ptr<ModelRunner> Worker::make_runner() {
  const cuda::Holder holder("step inputs");
  return std::make_unique<ModelRunner>(parts(), engine_.scheduler, vocab_, all_eos_token_ids(source_->config, source_->path),
                                       engine_.seed, vocabulary_);
}

void Worker::make_cache(int64_t available) {
  const cuda::Holder holder("KV cache");
  const KVCacheShape shape = kv_cache_shape(*model_, engine_.cache, ctx_.activations);
  if (const KernelTable& table = kernel_table(ctx_); !table.has(table, Op::kAttention, shape.dtype)) {
    throw ConfigError("--kv-cache-dtype " + engine_.cache.kv_cache_dtype + " has no attention kernel in " + std::string(table.name) +
                      ": the CPU has float32, bfloat16 and int8, GPUs bfloat16, float16 and fp8");
  }
  if (const int block = dtype_info(shape.dtype).block_size; shape.head_dim % block != 0) {
    throw ConfigError("--kv-cache-dtype " + engine_.cache.kv_cache_dtype + " wants heads of a multiple of " + std::to_string(block) +
                      " elements, this model's have " + std::to_string(shape.head_dim) + ": choose another type");
  }
  const int64_t blocks = choose_num_blocks(shape, engine_.cache, engine_.scheduler, available);
  cache_ = std::make_unique<KVCache>(shape, agree_on_minimum(blocks), ctx_.device);
}

// The cache gets what is left once a step of the full budget has run, kernels have been chosen for every size of a decode
// step, and it is known what their graphs take. Graphs hold the cache's address, so they are captured last.
void Worker::prepare_gpu() {
  const KVCacheShape shape = kv_cache_shape(*model_, engine_.cache, ctx_.activations);
  cache_ = std::make_unique<KVCache>(shape, 1, ctx_.device);
  runner_ = make_runner();
  const bool graphs = !engine_.enforce_eager;
  const auto sizes = graphs ? GraphRunner::sizes(std::min(engine_.scheduler.max_num_seqs, kLogitRowsAtOnce)) : std::vector<int64_t>();
  recall_kernel_choices(*cuda_, *groups_.tp);
  // The smaller ones first: products take over what was found for somewhat larger ones.
  for (const int64_t rows : sizes) runner_->rehearse(rows, /*decode=*/true);
  const int64_t budget = std::max(engine_.scheduler.max_num_batched_tokens, engine_.scheduler.max_num_seqs);
  for (int64_t rows = kFewestPromptRows; rows < budget; rows *= 2) runner_->rehearse(rows, /*decode=*/false);
  runner_->rehearse(budget, /*decode=*/false);
  keep_kernel_choices(*cuda_, *groups_.tp);
  end_phase("kernels");
  const auto free_before = static_cast<int64_t>(cuda::device_memory(ctx_.device).free);
  if (graphs) runner_->capture(sizes.back());
  const int64_t of_one = free_before - static_cast<int64_t>(cuda::device_memory(ctx_.device).free);
  runner_.reset();
  cache_.reset();

  const auto all_are_here = [&] {  // ranks that share a GPU measure before any of them takes more
    if (groups_.world != nullptr) groups_.world->barrier();
  };
  all_are_here();
  const cuda::DeviceMemory memory = cuda::device_memory(ctx_.device);
  all_are_here();
  const auto usable = static_cast<int64_t>(static_cast<double>(memory.total) * engine_.cache.gpu_memory_utilization);
  const auto used = static_cast<int64_t>(memory.total - memory.free);
  const int64_t reserved = kGpuSlackBytes + std::max<int64_t>(0, of_one) * static_cast<int64_t>(sizes.size());
  make_cache((usable - used) / ranks_on_gpu() - reserved);
  runner_ = make_runner();
  const auto free_at_last = static_cast<int64_t>(cuda::device_memory(ctx_.device).free);
  for (const int64_t rows : sizes) runner_->capture(rows);
  graph_bytes_ = std::max<int64_t>(0, free_at_last - static_cast<int64_t>(cuda::device_memory(ctx_.device).free));
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

Worker::GroupStats Worker::comm_stats() const {
  GroupStats sums;
  const auto add = [](CommStats& sum, const Communicator* group) {
    if (group == nullptr) return;
    const CommStats stats = group->stats();
    sum.calls += stats.calls;
    sum.bytes += stats.bytes;
    sum.seconds += stats.seconds;
  };
  for (const ParallelGroups* groups : {&groups_, &device_groups_}) {
    add(sums.tp, groups->tp.get());
    add(sums.pp, groups->pp.get());
  }
  return sums;
}

ModelRunnerOutput Worker::execute(const SchedulerOutput& step) {
  start(step);
  return finish();
}

// Ranks wait for each other as long as such a step may take, not longer. In a pipeline another stage may still be busy
// with the steps before it.
void Worker::start(const SchedulerOutput& step) {
  recent_rows_.push_back(step.num_tokens());
  const auto stages = static_cast<size_t>(groups_.pp->size());
  const size_t awaited = stages > 1 ? stages + 1 : 1;  // a pipeline has one step more in flight than stages
  if (recent_rows_.size() > awaited) recent_rows_.pop_front();
  const int64_t rows = std::accumulate(recent_rows_.begin(), recent_rows_.end(), int64_t{0});
  const auto timeout = clock_->timeout(rows);
  for (Communicator* group : {groups_.tp.get(), groups_.pp.get(), device_groups_.tp.get(), device_groups_.pp.get()}) {
    if (group != nullptr) group->set_timeout(timeout);
  }
  begun_.push_back({step.step, rows, Clock::now(), comm_stats()});
  in_step(begun_.back(), [&] {
    runner_->start(step);
    watch_groups();
  });
}

// Work on a GPU is queued: a rank that does not come is found by the watch, and its error comes out of the next one.
void Worker::watch_groups() {
  for (Communicator* group : {device_groups_.tp.get(), device_groups_.pp.get()}) {
    if (group != nullptr) group->watch();
  }
}

// What is said about another rank says in which step it happened.
template <typename Body>
void Worker::in_step(const Begun& begun, const Body& body) {
  try {
    body();
  } catch (const CommError& error) {
    throw CommError(fmt::format("step {} ({} rows, expected {}): {}", begun.step, begun.rows, clock_->describe(begun.rows), error.what()),
                    error.peer());
  }
}

ModelRunnerOutput Worker::finish() {
  const Begun begun = begun_.front();
  begun_.pop_front();
  ModelRunnerOutput output;
  output.step = begun.step;
  in_step(begun, [&] {
    output.sampled = runner_->finish();
    watch_groups();  // what a broken call left behind is no answer
  });
  const auto now = Clock::now();
  const auto duration = now - std::max(begun.at, finished_);
  clock_->record(begun.rows, duration);
  const GroupStats after = comm_stats();
  StepTiming timing;
  timing.rank = rank_;
  timing.total_us = microseconds(duration);
  timing.pp_comm_us = static_cast<float>((after.pp.seconds - begun.comm.pp.seconds) * 1e6);
  timing.comm_us = static_cast<float>((after.tp.seconds - begun.comm.tp.seconds) * 1e6) + timing.pp_comm_us;
  timing.compute_us = std::max(0.0f, timing.total_us - timing.comm_us);
  timing.pp_comm_bytes = after.pp.bytes - begun.comm.pp.bytes;
  timing.comm_bytes = after.tp.bytes - begun.comm.tp.bytes + timing.pp_comm_bytes;
  output.timings.push_back(timing);
  finished_ = now;
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
  if (ctx_.device.is_cpu()) return report;
  report.graphs = graph_bytes_;
  const cuda::DeviceMemory memory = cuda::device_memory(ctx_.device);
  const int64_t known = report.weights + report.kv_cache + report.activations + report.rotary + report.graphs;
  report.other = std::max<int64_t>(0, static_cast<int64_t>(memory.total - memory.free) / ranks_on_gpu() - known);
  return report;
}

void Worker::abort(const std::string& reason) {
  for (Communicator* group : {groups_.world.get(), groups_.tp.get(), groups_.pp.get(), device_groups_.tp.get(), device_groups_.pp.get()}) {
    if (group != nullptr) group->abort(reason);
  }
}

}  // namespace tutti
