// The paged KV cache as kernels see it, and which rows of a step belong to which sequence.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace tutti {

// One layer's keys and values, of a type that the backend's attention reads. A block holds `block_size` tokens of one sequence; a slot is
// block * block_size + offset. How elements lie inside one block and head is the kernels' own matter (on the CPU keys
// are [head_dim, block_size] there): whoever copies a cache copies whole blocks.
struct KVLayer {
  Tensor keys;    // [num_blocks, num_kv_heads, block_size, head_dim]
  Tensor values;  // [num_blocks, num_kv_heads, block_size, head_dim]
  int64_t block_size() const { return keys.size(2); }
};

// Rows of a step are ordered by sequence: sequence s owns rows [query_start[s], query_start[s + 1]). Its last row sits
// at position seq_lens[s] - 1; keys and values of the step's own rows are written before attention reads them.
struct AttentionMetadata {
  int num_seqs = 0;
  int64_t num_tokens = 0;
  int max_query_len = 0;
  int64_t max_seq_len = 0;
  Tensor query_start;   // I32 [num_seqs + 1]
  Tensor seq_lens;      // I32 [num_seqs]: tokens in the cache, those of this step included
  Tensor block_table;   // I32 [num_seqs, max_blocks]
  Tensor positions;     // I32 [num_tokens]
  Tensor slot_mapping;  // I64 [num_tokens]: where each row's key and value go
};

}  // namespace tutti
