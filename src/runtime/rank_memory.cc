#include "runtime/rank_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "models/stage_partition.h"
#include "runtime/model_runner.h"
#include "runtime/weight_loader.h"

namespace tutti {
namespace {

constexpr int64_t kScratchBytes = int64_t{64} << 20;  // kernels' own scratch beside the activations
constexpr int64_t kGatherRows = 32;                   // whole logit rows at once under tensor parallelism

double gib(int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30); }

// A number in a one-line file of the kernel; nothing when there is none ("max").
std::optional<int64_t> kernel_number(const char* path) {
  std::ifstream in(path);
  int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

// What flags say of the KV cache is too little before any rank has started. The rank with the largest blocks speaks for all.
void check_kv_cache(const std::vector<RankMemory>& all, const EngineConfig& engine) {
  const bool said = engine.device == "cpu" || engine.cache.kv_cache_memory_bytes || engine.cache.num_blocks_override;
  if (!said || engine.scheduler.fit_max_model_len) return;
  const auto largest = std::max_element(all.begin(), all.end(), [](const RankMemory& a, const RankMemory& b) {
    return a.kv_shape.bytes_per_block() < b.kv_shape.bytes_per_block();
  });
  choose_num_blocks(largest->kv_shape, engine.cache, engine.scheduler);
}

}  // namespace

size_t activation_bytes(const DecoderModel& model, const SchedulerConfig& scheduler, int tp_size, DType activations) {
  const ModelConfig& config = model.config();
  const TensorPartition& cut = model.partition();
  const int64_t tokens = std::max(scheduler.max_num_batched_tokens, scheduler.max_num_seqs);
  const int64_t heads = (cut.heads.count + 2 * cut.kv_heads.count) * config.head_dim;
  const int64_t widest = std::max({heads + cut.heads.count * config.head_dim, cut.ffn.count, config.hidden_size});
  // The stream, a block's output, the normed stream and their kept rows; rounded outputs; a block's inside; its quantised copy.
  int64_t elements = tokens * (6 * config.hidden_size + config.hidden_size / 2 + 2 * widest + std::max(config.hidden_size, cut.ffn.count));
  if (tp_size > 1) {
    // What a projection gathers: everybody's inputs, as sent and as used, and everybody's outputs.
    const int64_t inputs = std::max<int64_t>(config.intermediate_size, int64_t{config.num_heads} * config.head_dim);
    elements += tokens * (4 * inputs + 3 * config.hidden_size + (tp_size + 2) * 128);
  }
  const int64_t blocks = (scheduler.max_model_len + 15) / 16 + 1;
  int64_t floats = scheduler.max_num_seqs * blocks + tokens * (8 + 2 * ops::norm_parts(config.hidden_size));
  if (model.is_last_stage()) {
    floats += std::min(kLogitRowsAtOnce, tokens) * cut.vocab.count;
    if (tp_size > 1) floats += kGatherRows * (2 * config.vocab_size + tp_size * 64);
  }
  return dtype_bytes(activations, elements) + static_cast<size_t>(floats) * sizeof(float) + static_cast<size_t>(kScratchBytes);
}

int64_t rotary_bytes(const ModelConfig& config, int64_t max_positions) {
  return max_positions * config.rope.rotary_dim * static_cast<int64_t>(sizeof(float));
}

KVCacheShape kv_cache_shape(const DecoderModel& model, const CacheConfig& cache, DType activations) {
  return {model.layer_range().count(), model.partition().kv_heads.count, model.config().head_dim, cache.block_size,
          kv_cache_dtype(cache.kv_cache_dtype, activations)};
}

OutputCut output_cut(const EngineConfig& engine) {
  return engine.device == "cpu" && engine.comm.dtype == "auto" ? OutputCut::kRows : OutputCut::kColumns;
}

std::vector<RankMemory> estimate_memory(const ModelSource& source, const EngineConfig& engine) {
  const ModelConfig& config = source.config;
  const auto ranges = partition_layers(config, engine.parallel);
  const QuantBlocks blocks = source.quant_blocks();
  SchedulerConfig scheduler = engine.scheduler;
  if (scheduler.max_model_len <= 0) scheduler.max_model_len = config.max_position_embeddings;
  const auto self = make_self_communicator();
  std::vector<RankMemory> all;
  for (int rank = 0; rank < engine.parallel.replica_size(); ++rank) {
    const RankCoordinates at = engine.parallel.coordinates(rank);
    const DecoderModel model(config, partition_tensors(config, engine.parallel, at.tp, blocks, output_cut(engine)), *self,
                             ranges[static_cast<size_t>(at.pp)], /*max_positions=*/1);
    const DType activations = source.gpu_activations.value_or(DType::kF32);
    const KVCacheShape shape = kv_cache_shape(model, engine.cache, activations);
    RankMemory memory;
    memory.rank = rank;
    memory.kv_shape = shape;
    memory.weights = parameter_bytes(source, model.parameters());
    int64_t kv_blocks = (scheduler.max_model_len + shape.block_size - 1) / shape.block_size;
    if (scheduler.fit_max_model_len) {  // what a GPU has left is known when the rest is there
      kv_blocks = engine.device == "cpu" ? std::min(kv_blocks, choose_num_blocks(shape, engine.cache, scheduler)) : 1;
    }
    memory.kv_cache = kv_blocks * shape.bytes_per_block();
    memory.activations = static_cast<int64_t>(activation_bytes(model, scheduler, engine.parallel.tensor_parallel_size, activations));
    memory.rotary = rotary_bytes(config, scheduler.max_model_len);
    all.push_back(memory);
  }
  return all;
}

int64_t available_memory() {
  int64_t available = 0;
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    std::istringstream words(line);
    std::string key;
    int64_t kib = 0;
    if (words >> key >> kib && key == "MemAvailable:") available = kib * 1024;
  }
  const auto limit = kernel_number("/sys/fs/cgroup/memory.max");
  const auto used = kernel_number("/sys/fs/cgroup/memory.current");
  if (limit && used) available = std::min(available, std::max<int64_t>(0, *limit - *used));
  return available;
}

void check_fits(const ModelSource& source, const EngineConfig& engine, const std::vector<int>& ranks, int64_t available,
                const std::string& others) {
  const auto all = estimate_memory(source, engine);
  check_kv_cache(all, engine);
  RankMemory sum;
  for (int rank : ranks) {
    const RankMemory& one = all[static_cast<size_t>(rank % engine.parallel.replica_size())];
    sum.weights += one.weights;
    sum.kv_cache += one.kv_cache;
    sum.activations += one.activations;
    sum.rotary += one.rotary;
  }
  if (sum.total() <= available) return;
  throw ConfigError(fmt::format(
      "does not fit: {} rank{} on this {} need {:.2f} GiB (weights {:.2f}, KV of one sequence {:.2f}, activations {:.2f}, "
      "position tables {:.2f}), {:.2f} GiB are available{}. Ways out: more nodes (--tensor-parallel-size, "
      "--pipeline-parallel-size), a lower --max-model-len or --max-num-batched-tokens, a quantised model",
      ranks.size(), ranks.size() == 1 ? "" : "s", engine.device == "cpu" ? "machine" : "GPU", gib(sum.total()), gib(sum.weights), gib(sum.kv_cache), gib(sum.activations),
      gib(sum.rotary), gib(available), others.empty() ? "" : " beside " + others));
}

}  // namespace tutti
