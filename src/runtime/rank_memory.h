// How much memory a rank needs, before anything is loaded: the sum that is said when a model does not fit. Pure
// arithmetic on the model's configuration and tensor sizes. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/engine_config.h"
#include "models/decoder.h"
#include "runtime/kv_cache.h"
#include "runtime/model_source.h"

namespace tutti {

// Reserved for one step's activations, of this type, at the full token budget.
size_t activation_bytes(const DecoderModel& model, const SchedulerConfig& scheduler, int tp_size, DType activations);
int64_t rotary_bytes(const ModelConfig& config, int64_t max_positions);
KVCacheShape kv_cache_shape(const DecoderModel& model, const CacheConfig& cache, DType activations);
// How the second matrix of a block is cut on the engine's device.
OutputCut output_cut(const EngineConfig& engine);

struct RankMemory {
  int rank = 0;
  KVCacheShape kv_shape;
  int64_t weights = 0;
  int64_t kv_cache = 0;     // of one sequence of max_model_len, the least that can serve
  int64_t activations = 0;
  int64_t rotary = 0;
  int64_t total() const { return weights + kv_cache + activations + rotary; }
};

// Of every rank of a replica.
std::vector<RankMemory> estimate_memory(const ModelSource& source, const EngineConfig& engine);

// What this machine has left (MemAvailable, or the control group's limit when that is lower).
int64_t available_memory();

// Throws ConfigError with the sum when `ranks` (those of this machine, or of one GPU) need more than `available` bytes
// together, or when flags leave the KV cache no room for one sequence. `others`: who else holds memory there, if that is known.
void check_fits(const ModelSource& source, const EngineConfig& engine, const std::vector<int>& ranks, int64_t available,
                const std::string& others = "");

}  // namespace tutti
