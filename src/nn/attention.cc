#include "nn/attention.h"

namespace tutti {
namespace {

std::string prefix(int layer) { return "layers." + std::to_string(layer) + ".attention"; }

std::vector<Range> times(std::vector<Range> ranges, int64_t n) {
  for (Range& range : ranges) range = range.times(n);
  return ranges;
}

}  // namespace

Attention::Attention(const BuildContext& build, int layer, int kv_index, const RotaryEmbedding& rotary)
    : qkv_(build, prefix(layer)),
      output_(make_output_projection(build, prefix(layer) + ".o", int64_t{build.config.num_heads} * build.config.head_dim,
                                     build.config.hidden_size, times(build.cut.all_heads, build.config.head_dim),
                                     build.config.output_bias)),
      rotary_(rotary),
      num_heads_(build.cut.heads.count),
      num_kv_heads_(build.cut.kv_heads.count),
      head_dim_(build.config.head_dim),
      kv_index_(kv_index) {
  if (build.config.qk_norm) {
    q_norm_.emplace(build, prefix(layer) + ".q_norm", head_dim_);
    k_norm_.emplace(build, prefix(layer) + ".k_norm", head_dim_);
  }
  params_.scale = build.config.softmax_scale();
  if (layer >= build.config.first_sliding_layer) params_.sliding_window = build.config.sliding_window;
}

void Attention::project(const ForwardStep& step, const ops::Input& x, const KVLayer& cache, const Tensor& qkv) const {
  if (!q_norm_ && !k_norm_) return rotary_.forward(step, x, qkv_, cache, qkv);
  const int64_t q_size = num_heads_ * head_dim_, kv_size = num_kv_heads_ * head_dim_;
  qkv_.forward(step.ctx, x, qkv);
  const Tensor q = qkv.slice(1, 0, q_size).split_last(num_heads_, head_dim_);
  const Tensor k = qkv.slice(1, q_size, kv_size).split_last(num_kv_heads_, head_dim_);
  const Tensor v = qkv.slice(1, q_size + kv_size, kv_size).split_last(num_kv_heads_, head_dim_);
  if (q_norm_) q_norm_->forward(step.ctx, q, q);
  if (k_norm_) k_norm_->forward(step.ctx, k, k);
  rotary_.forward(step, q, k, v, cache);
}

BlockOutput Attention::forward(const ForwardStep& step, const ops::Input& x) const {
  const int64_t num_tokens = x.x.size(0), q_size = num_heads_ * head_dim_;
  const KVLayer& cache = step.kv[static_cast<size_t>(kv_index_)];
  const Tensor heads = step.ctx.arena->allocate({num_tokens, num_heads_, head_dim_}, x.x.dtype());
  const ArenaScope scratch(step.ctx);
  const Tensor qkv = step.ctx.arena->allocate({num_tokens, q_size + 2 * num_kv_heads_ * head_dim_}, x.x.dtype());
  project(step, x, cache, qkv);
  ops::paged_attention(step.ctx, qkv.slice(1, 0, q_size).split_last(num_heads_, head_dim_), cache, step.meta, params_, heads);
  return {*output_, heads.reshape({num_tokens, q_size})};
}

}  // namespace tutti
