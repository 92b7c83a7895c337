// The residual stream of a step. A block adds its output: in the product's own kernel where this rank has all of it; else
// the all-reduce (of a partial sum), the addition and the next block's norm are owed until somebody asks for the stream,
// and then run together. Worker thread only, one step long.
#pragma once

#include "nn/forward_step.h"
#include "nn/norm.h"
#include "nn/output_projection.h"

namespace tutti {

class Residual {
 public:
  // Takes its buffers from the arena. [num_tokens, hidden_size]
  Residual(const Context& ctx, Communicator& tp, int64_t num_tokens, int64_t hidden_size);

  // The stream itself, complete: to be filled by the embedding or the previous stage, and sent to the next one.
  const Tensor& hidden();

  // x = x + the block's output, summed over the group's ranks where it is partial. `next`: the norm that will be asked for
  // next, if it is known; the product may do a part of its work. `reader`: ops::NormAhead's.
  void add(const BlockOutput& block, const RMSNorm* next = nullptr, const PackedWeight* reader = nullptr);
  // norm(x) for the products that read it, which may compute it themselves; valid until the next call.
  ops::Input norm(const RMSNorm& norm);
  // norm(x) as a tensor; likewise.
  const Tensor& normed(const RMSNorm& norm);
  // From here on only these rows matter (those whose logits are wanted).  rows I32 [n], ascending, each once
  void keep_rows(const Tensor& rows);

 private:
  void complete();
  bool complete_with(const RMSNorm& norm);

  const Context& ctx_;
  Communicator& tp_;
  Tensor hidden_;
  Tensor output_;
  Tensor normed_;        // or what a product left for left_for_
  Tensor squares_;       // with it; on GPUs
  const RMSNorm* left_for_ = nullptr;
  bool owed_ = false;     // output_ holds what hidden_ lacks
  bool partial_ = false;  // and it is this rank's part of a sum
};

}  // namespace tutti
