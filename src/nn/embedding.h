// The token embedding and the output head, both cut by vocabulary rows over the tensor-parallel group. Worker thread
// only.
#pragma once

#include <memory>

#include "nn/build_context.h"
#include "nn/forward_step.h"
#include "ops/ops.h"

namespace tutti {

// A rank looks up the ids of its own rows and gives zeros for the others; the sum over the group is the embedding.
class VocabParallelEmbedding {
 public:
  VocabParallelEmbedding(const BuildContext& build, const std::string& name);

  // out [num_tokens, hidden_size]: complete on every rank
  void forward(const Context& ctx, const ops::TokenIds& tokens, const Tensor& out) const;
  // For a head with tied weights: one packed copy serves both.
  std::shared_ptr<const PackedWeight> table() const { return table_; }

 private:
  std::shared_ptr<PackedWeight> table_ = std::make_shared<PackedWeight>();
  int64_t vocab_begin_;
  Communicator& tp_;
};

class ParallelLMHead {
 public:
  ParallelLMHead(const BuildContext& build, const std::string& name);
  explicit ParallelLMHead(const VocabParallelEmbedding& tied) : table_(tied.table()) {}

  // x [num_rows, hidden_size], logits F32 [num_rows, this rank's part of the vocabulary]
  void forward(const Context& ctx, const ops::Input& x, const Tensor& logits) const;

 private:
  std::shared_ptr<const PackedWeight> table_;
};

}  // namespace tutti
