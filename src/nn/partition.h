// Which heads, feed-forward columns and vocabulary rows each tensor-parallel rank holds. All are dealt in units and a
// rank may get more units than another, so that 9 heads with 3 KV heads run on 2 ranks. Pure arithmetic: also used
// before anything is loaded, to say what fits.
#pragma once

#include <vector>

#include "config/model_config.h"
#include "config/parallel_config.h"
#include "nn/parameter.h"

namespace tutti {

// How the second matrix of a block is cut (nn/output_projection.h).
enum class OutputCut : uint8_t {
  kRows,     // by output features: every group size gives the same bits
  kColumns,  // by input features: partial sums
};

// The part of every layer that one rank of the tensor-parallel group holds.
struct TensorPartition {
  int rank = 0;
  int size = 1;
  OutputCut output = OutputCut::kRows;
  Range heads;     // query heads
  Range kv_heads;  // replicated when there are more ranks than KV heads
  Range ffn;       // columns of the feed-forward block
  Range vocab;     // rows of the embedding and of the head
  // What each rank of the group holds, in rank order.
  std::vector<Range> all_heads;
  std::vector<Range> all_ffn;
  std::vector<Range> all_hidden;  // output features of the second matrices, with OutputCut::kRows
};

// Quantisation blocks of the attention output projection's inputs and of the down projection's; 1 for plain types. A cut
// by columns keeps blocks of the weight whole; a cut by rows only the 32 activations that share a scale.
struct QuantBlocks {
  int attention_output = 1;
  int down = 1;
};

// Throws ConfigError when there are fewer units than ranks, with the largest group that works.
TensorPartition partition_tensors(const ModelConfig& model, const ParallelConfig& parallel, int tp_rank,
                                  QuantBlocks blocks = {}, OutputCut output = OutputCut::kRows);

}  // namespace tutti
