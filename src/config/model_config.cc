#include "config/model_config.h"

#include <cmath>

namespace tutti {

double ModelConfig::softmax_scale() const {
  return attention_scale > 0.0 ? attention_scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

int64_t ModelConfig::kv_bytes_per_token(int bytes_per_element) const {
  return int64_t{2} * num_layers * num_kv_heads * head_dim * bytes_per_element;
}

int64_t ModelConfig::num_parameters() const {
  const int64_t attention = hidden_size * (num_heads + 2 * num_kv_heads) * head_dim + int64_t{num_heads} * head_dim * hidden_size;
  const int64_t mlp = 3 * hidden_size * intermediate_size;
  const int64_t norms = 2 * hidden_size + (qk_norm ? 2 * head_dim : 0);
  const int64_t embeddings = vocab_size * hidden_size * (tie_word_embeddings ? 1 : 2);
  return num_layers * (attention + mlp + norms) + embeddings + hidden_size;
}

}  // namespace tutti
