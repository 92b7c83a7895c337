// What the command line asked for, after defaults. Filled by apps/, const after start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/parallel_config.h"

namespace tutti {

struct SchedulerConfig {
  int64_t max_num_batched_tokens = 2048;
  int64_t max_num_seqs = 256;
  int64_t max_model_len = 0;             // resolved before start, or, where it shall fit, when ranks have loaded
  bool fit_max_model_len = false;        // --max-model-len -1: the model's own, or what the KV cache holds where that is less
  bool enable_chunked_prefill = true;
  int64_t long_prefill_token_threshold = 0;  // 0 = none: the most prompt tokens one request gets in a step
  bool priority_policy = false;          // --scheduling-policy priority
  int64_t max_queue_size = 4096;         // waiting requests before 429
};

struct CacheConfig {
  int64_t block_size = 16;
  bool enable_prefix_caching = true;
  double gpu_memory_utilization = 0.92;
  std::optional<int64_t> kv_cache_memory_bytes;  // --kv-cache-memory-bytes; on the CPU 4 GiB unless said
  std::optional<int64_t> num_blocks_override;    // --num-gpu-blocks-override
  bool kv_cache_metrics = false;                 // how long KV blocks live, on /metrics
  double kv_cache_metrics_sample = 0.01;         // of that share of the blocks
  std::string kv_cache_dtype = "auto";           // auto = float32 on the CPU, that of the activations on a GPU
};

// How the ranks of different nodes exchange tensors.
struct CommConfig {
  std::string dtype = "auto";            // --comm-dtype: auto (exact), int8, fp8
  std::string transport = "tcp";         // --comm-transport: tcp, ucx
  int tcp_streams = 1;                   // --tcp-streams: connections of two ranks that share a large message
  int port_min = 0;                      // --data-ports of the ranks' listening sockets; 0, 0 = the 100 after the
  int port_max = 0;                      // control port
};

struct EngineConfig {
  std::string model;                     // as typed
  std::string model_path;                // folder or file
  std::vector<std::string> served_model_names;
  std::string load_format = "auto";
  std::string dtype = "auto";
  std::string device = "cpu";            // cpu or cuda; of all ranks
  std::string quantization;              // "" or fp8: matrices become FP8 at load (GPUs)
  bool fp8_weight_only = false;          // FP8 weights meet activations that are not rounded (GPUs)
  bool batch_invariant = false;          // a request's bits do not depend on its neighbours (GPUs; CPUs always are so)
  bool enforce_eager = false;            // no graphs
  bool disable_custom_all_reduce = false;  // between GPUs NCCL alone
  uint64_t seed = 0;
  ParallelConfig parallel;
  CommConfig comm;
  SchedulerConfig scheduler;
  CacheConfig cache;
  std::string cpu_level;                 // instruction set level of all ranks' CPU kernels: two of them give other bits; "" on GPUs
  int cpu_threads = 0;                   // of one rank; 0 = cores of the node / its ranks
  double collective_timeout_s = 10.0;    // the most that a collective may be late
};

}  // namespace tutti
