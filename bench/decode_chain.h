// A decoder of some shape with random weights on the GPU, run through the ops that a model calls, as one CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/cuda_context.h"
#include "ops/ops.h"

namespace tutti::bench {

struct ModelShape {
  std::string name;
  int layers;
  int64_t hidden, heads, kv_heads, head_dim, intermediate, vocab;
  int64_t qkv_rows() const { return (heads + 2 * kv_heads) * head_dim; }
  // Of all layers and the head; the embedding's table is read at single rows only.
  double weight_bytes(double element) const;
  double kv_bytes_per_token(double element) const { return 2.0 * layers * static_cast<double>(kv_heads * head_dim) * element; }
  double flop_per_token() const { return 2.0 * weight_bytes(1.0); }
};

struct Timing {
  double median_ms = 0;
  double best_ms = 0;
};

struct ChainOptions {
  bool fp8 = false;        // weights, the head's too; BF16 otherwise
  bool fp8_cache = false;
  CudaOptions cuda;
};

class DecodeChain {
 public:
  // `max_tokens`: the largest step. Takes device memory for the weights, `cached_tokens` of cache and one step.
  DecodeChain(const ModelShape& shape, const ChainOptions& options, int64_t max_tokens, int64_t cached_tokens);
  ~DecodeChain();
  DecodeChain(const DecodeChain&) = delete;
  DecodeChain& operator=(const DecodeChain&) = delete;

  // Steps of `seqs` sequences with `query_len` new tokens each, their last at position context - 1; logits for the last
  // token of each.
  Timing time_step(int seqs, int query_len, int context, int repeats);
  // What of such a step attention takes, and the norms, ropes and cache writes, over all layers.
  Timing time_attention(int seqs, int query_len, int context, int repeats);
  Timing time_small_ops(int seqs, int query_len, int context, int repeats);

  const Context& ctx() const { return ctx_; }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(cuda_stream(*cuda_)); }
  // Random normal numbers in BF16 or E4M3, repeated from a pool.
  Tensor random(std::initializer_list<int64_t> shape, double deviation, DType dtype = DType::kBF16);
  PackedWeight random_weight(std::vector<int64_t> rows, int64_t k);
  PackedWeight random_table(int64_t rows, int64_t k);  // BF16, as embedding() reads it

 private:
  struct Layer {
    PackedWeight qkv, o, gate_up, down;
    Tensor input_norm, post_norm;
    KVLayer kv;
  };
  struct Step;
  void fill(void* data, size_t bytes, const Tensor& pool);
  Tensor ints(const std::vector<int32_t>& values);
  Step make_step(int seqs, int query_len, int context);
  void run(const Step& step);

  ModelShape shape_;
  ChainOptions options_;
  std::shared_ptr<CudaContext> cuda_;
  std::unique_ptr<Arena> arena_;
  Context ctx_;
  struct Pool {
    double deviation;
    Tensor values;
  };
  std::vector<Pool> pools_;
  std::vector<Layer> layers_;
  PackedWeight embedding_, head_;
  Tensor norm_, cos_sin_;
};

// The median and best time of calls captured in a graph, each call once.
Timing time_graph(cudaStream_t stream, int repeats, const std::function<void()>& calls);

}  // namespace tutti::bench
