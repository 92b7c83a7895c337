#include "models/decoder.h"

#include "ops/ops.h"

namespace tutti {
namespace {

std::string layer_name(int layer, const char* part) { return "layers." + std::to_string(layer) + "." + part; }

}  // namespace

DecoderLayer::DecoderLayer(const BuildContext& build, int layer, int kv_index, const RotaryEmbedding& rotary)
    : input_norm_(build, layer_name(layer, "input_norm"), build.config.hidden_size),
      attention_(build, layer, kv_index, rotary),
      post_norm_(build, layer_name(layer, "post_norm"), build.config.hidden_size),
      mlp_(build, layer) {}

void DecoderLayer::forward(const ForwardStep& step, Residual& r, const RMSNorm* next) const {
  {
    const ArenaScope scratch(step.ctx);
    r.add(attention_.forward(step, r.norm(input_norm_)), &post_norm_, &mlp_.first_weight());
  }
  const ArenaScope scratch(step.ctx);
  r.add(mlp_.forward(step, r.norm(post_norm_)), next);
}

DecoderModel::DecoderModel(const ModelConfig& config, const TensorPartition& cut, Communicator& tp, LayerRange range,
                           int64_t max_positions, Device device)
    : config_(config), cut_(cut), range_(range), rotary_(config.rope, max_positions, device) {
  const BuildContext build{config_, cut_, tp, parameters_};
  const bool first = range.begin == 0;
  const bool last = range.end == config.num_layers;
  if (first) embedding_ = std::make_unique<VocabParallelEmbedding>(build, "embed");
  for (int layer = range.begin; layer < range.end; ++layer) {
    layers_.push_back(std::make_unique<DecoderLayer>(build, layer, layer - range.begin, rotary_));
  }
  if (!last) return;
  norm_ = std::make_unique<RMSNorm>(build, "norm", config.hidden_size);
  if (!config.tie_word_embeddings) {
    head_ = std::make_unique<ParallelLMHead>(build, "head");
  } else if (first) {
    head_ = std::make_unique<ParallelLMHead>(*embedding_);
  } else {
    head_ = std::make_unique<ParallelLMHead>(build, "embed");  // the first stage's copy is on another rank
  }
}

void DecoderModel::embed(const ForwardStep& step, const ops::TokenIds& tokens, Residual& r) const {
  embedding_->forward(step.ctx, tokens, r.hidden());
}

void DecoderModel::layers(const ForwardStep& step, Residual& r) const {
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i]->forward(step, r, i + 1 < layers_.size() ? &layers_[i + 1]->input_norm() : norm_.get());
}

ops::Input DecoderModel::last_hidden(const Tensor& rows, Residual& r) const {
  r.keep_rows(rows);
  return r.norm(*norm_);
}

Tensor DecoderModel::logits(const ForwardStep& step, const ops::Input& last_hidden) const {
  Tensor logits = step.ctx.arena->allocate({last_hidden.x.size(0), cut_.vocab.count}, DType::kF32);
  head_->forward(step.ctx, last_hidden, logits);
  return logits;
}

}  // namespace tutti
