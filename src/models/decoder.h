// The decoder of every family: the paper's equations over the layers of one pipeline stage, with this rank's part of
// each. Built once, then forward calls of one step at a time. Worker thread only.
#pragma once

#include <memory>
#include <vector>

#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/mlp.h"
#include "nn/residual.h"
#include "nn/rotary.h"

namespace tutti {

// The layers of one pipeline stage.
struct LayerRange {
  int begin = 0;
  int end = 0;
  int count() const { return end - begin; }
};

class DecoderLayer {
 public:
  DecoderLayer(const BuildContext& build, int layer, int kv_index, const RotaryEmbedding& rotary);

  // `next`: the norm of the layer behind it, nullptr behind the stage's last.
  void forward(const ForwardStep& step, Residual& r, const RMSNorm* next) const;
  const RMSNorm& input_norm() const { return input_norm_; }

 private:
  RMSNorm input_norm_;
  Attention attention_;
  RMSNorm post_norm_;
  GatedMLP mlp_;
};

class DecoderModel {
 public:
  // `max_positions`: the longest sequence that will be asked for. `device`: where it will run.
  DecoderModel(const ModelConfig& config, const TensorPartition& cut, Communicator& tp, LayerRange range, int64_t max_positions,
               Device device = Device::cpu());

  // First stage: fills the stream.
  void embed(const ForwardStep& step, const ops::TokenIds& tokens, Residual& r) const;
  void layers(const ForwardStep& step, Residual& r) const;
  // Last stage: the stream of these rows, the only ones that remain, to be normed.  rows I32 [num_rows], ascending, each once;
  // result [num_rows, hidden_size]
  ops::Input last_hidden(const Tensor& rows, Residual& r) const;
  // Last stage: F32 [num_rows, this rank's part of the vocabulary], from the arena.
  Tensor logits(const ForwardStep& step, const ops::Input& last_hidden) const;

  bool is_first_stage() const { return embedding_ != nullptr; }
  bool is_last_stage() const { return head_ != nullptr; }
  const LayerRange& layer_range() const { return range_; }
  const TensorPartition& partition() const { return cut_; }
  const ModelConfig& config() const { return config_; }
  const ParameterList& parameters() const { return parameters_; }

 private:
  const ModelConfig config_;
  const TensorPartition cut_;
  const LayerRange range_;
  ParameterList parameters_;
  RotaryEmbedding rotary_;
  std::unique_ptr<VocabParallelEmbedding> embedding_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  std::unique_ptr<RMSNorm> norm_;
  std::unique_ptr<ParallelLMHead> head_;
};

}  // namespace tutti
