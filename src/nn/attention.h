// Grouped-query attention over the paged KV cache, with this rank's heads. Worker thread only.
#pragma once

#include <optional>
#include <string>

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/output_projection.h"
#include "nn/rotary.h"

namespace tutti {

class Attention {
 public:
  // `layer` is the model's layer number, `kv_index` its place in ForwardStep::kv.
  Attention(const BuildContext& build, int layer, int kv_index, const RotaryEmbedding& rotary);

  // x [num_tokens, hidden_size]; the result's input is in the arena
  BlockOutput forward(const ForwardStep& step, const ops::Input& x) const;

 private:
  // The step's queries, rotated, in qkv; its keys and values in the cache.
  void project(const ForwardStep& step, const ops::Input& x, const KVLayer& cache, const Tensor& qkv) const;

  QKVParallelLinear qkv_;
  std::unique_ptr<OutputProjection> output_;
  std::optional<RMSNorm> q_norm_;  // over each head
  std::optional<RMSNorm> k_norm_;
  const RotaryEmbedding& rotary_;
  ops::AttentionParams params_;
  int64_t num_heads_;
  int64_t num_kv_heads_;
  int64_t head_dim_;
  int kv_index_;
};

}  // namespace tutti
