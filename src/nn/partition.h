// Which heads, feed-forward columns and vocabulary rows each tensor-parallel rank holds. All are dealt in units and a
// rank may get more units than another, so that 9 heads with 3 KV heads run on 2 ranks. Pure arithmetic: also used
// before anything is loaded, to say what fits.
#pragma once

#include "config/model_config.h"
#include "config/parallel_config.h"
#include "nn/parameter.h"

namespace tutti {

// The part of every layer that one rank of the tensor-parallel group holds.
struct TensorPartition {
  int rank = 0;
  int size = 1;
  Range heads;     // query heads
  Range kv_heads;  // replicated when there are more ranks than KV heads
  Range ffn;       // columns of the feed-forward block
  Range vocab;     // rows of the embedding and of the head
};

// Elements that may not be separated because they share a quantisation block: of the attention output projection's
// inputs and of the down projection's inputs. 1 for plain types.
struct QuantBlocks {
  int attention_output = 1;
  int down = 1;
};

// Throws ConfigError when there are fewer units than ranks, with the largest group that works.
TensorPartition partition_tensors(const ModelConfig& model, const ParallelConfig& parallel, int tp_rank,
                                  QuantBlocks blocks = {});

}  // namespace tutti
