// Rotary position embedding (arXiv:2104.09864): the table of cosines and sines, with every frequency scaling in use.
// Built once per rank at load, read by every attention layer. Worker thread only.
#pragma once

#include <vector>

#include "config/model_config.h"
#include "nn/forward_step.h"
#include "nn/linear.h"

namespace tutti {

// Radians per position for each rotated pair, and the factor on cosines and sines, when sequences may be as long as
// `max_positions`. Dynamic NTK and LongRoPE choose by that length once, not by each sequence's own: a key in the cache
// then means the same to every later query.
struct RopeFrequencies {
  std::vector<double> inv_freq;  // [rotary_dim / 2]
  double magnitude = 1.0;
};
RopeFrequencies rope_frequencies(const RopeConfig& rope, int64_t max_positions);

class RotaryEmbedding {
 public:
  RotaryEmbedding(const RopeConfig& rope, int64_t max_positions, Device device = Device::cpu());

  // Rotates q and k in place, then writes k and v to the cache.  q [num_tokens, num_heads, head_dim], k and v
  // [num_tokens, num_kv_heads, head_dim], rows may be strided
  void forward(const ForwardStep& step, const Tensor& q, const Tensor& k, const Tensor& v, const KVLayer& cache) const;
  // The product of q, k and v before it, where nothing comes between them. Afterwards only q's part of qkv means something.
  void forward(const ForwardStep& step, const ops::Input& x, const QKVParallelLinear& product, const KVLayer& cache, const Tensor& qkv) const;

 private:
  RopeLayout layout_;
  Tensor cos_sin_;  // F32 [max_positions, 2, rotary_dim / 2]
};

}  // namespace tutti
