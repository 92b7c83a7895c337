// The gated feed-forward block (SwiGLU, arXiv:2002.05202) with this rank's columns. Worker thread only.
#pragma once

#include "nn/forward_step.h"
#include "nn/linear.h"
#include "nn/output_projection.h"

namespace tutti {

class GatedMLP {
 public:
  GatedMLP(const BuildContext& build, int layer);

  // x [num_tokens, hidden_size]; the result's input is in the arena
  BlockOutput forward(const ForwardStep& step, const ops::Input& x) const;
  // What reads x first.
  const PackedWeight& first_weight() const { return gate_up_.weight(); }

 private:
  ColumnParallelLinear gate_up_;
  std::unique_ptr<OutputProjection> down_;
  int64_t columns_;
};

}  // namespace tutti
