// What the attention kernels are told. Prefill and decode differ in how rows are dealt to blocks; sequences with one row
// take decode's kernel, the others prefill's. The metadata of a step, and the cache of earlier steps, are complete before
// the first kernel of the step is launched: they are read before the previous kernel's end is waited for.
#pragma once

#include "ops/cuda/kernels.h"

namespace tutti::cuda {

// How a key or value of `head_dim` elements lies in the cache: in units of 8 elements, of which token t's unit u stands at
// u ^ (t % 8) when `swizzled`. Whole tiles then go to shared memory as they are and are read without bank conflicts.
inline bool cache_is_swizzled(const KVLayer& cache) {
  return dtype_bytes(cache.keys.dtype(), 1) == 2 && cache.keys.size(3) % 64 == 0 && cache.block_size() % 8 == 0;
}

struct AttentionArgs {
  const void* q;
  int64_t q_stride;  // elements between tokens
  void* out;
  int64_t out_stride;
  const void* keys;    // [num_blocks, num_kv_heads, block_size, head_dim]
  const void* values;
  const int32_t* query_start;
  const int32_t* seq_lens;
  const int32_t* block_table;
  int64_t table_stride;
  int num_seqs;
  int num_kv_heads;
  int group;  // query heads that share a key head
  int head_dim;
  int block_size;
  int block_shift;  // its logarithm, -1 when it is no power of two
  bool swizzled;
  int window;      // 0 = all
  float scale;     // of scores, times log2(e): probabilities are powers of two
  float soft_cap;  // 0 = none
  bool no_decode;  // sequences with one row are prefill's too
  // Decode: keys of a sequence are cut into `splits` parts at most. `cluster` parts that follow each other are joined in
  // shared memory, what the clusters have through these:
  int splits;
  int cluster;
  float* partial;      // [num_seqs, num_kv_heads * row_tiles, splits / cluster, 16, head_dim]
  float* stats;        // [num_seqs, num_kv_heads * row_tiles, splits / cluster, 16, 2]: maximum, sum
  unsigned* arrivals;  // [num_seqs * num_kv_heads * row_tiles]
};

// What a block may ask for on every GPU from compute capability 8.0 on. Kernels that are faster with more have a smaller form.
constexpr size_t kLeastSharedMemory = 99 * 1024;

constexpr int kDecodeRows = 16;  // query heads of one token, in a block
constexpr int kMaxSplits = 64;
constexpr int kMaxCluster = 8;  // blocks; every GPU with clusters can
constexpr int64_t kShallowSlots = 32;  // sequences x key heads up to which a part of a sequence is a tile or two

// Head dimensions up to 256 in multiples of 8; `dim` is the next of 64, 96, 128, 192, 256.
void attention_decode(const Context& ctx, const AttentionArgs& args, int dim, DType activations, DType cache);
void attention_prefill(const Context& ctx, const AttentionArgs& args, int64_t num_tokens, int max_query_len, int dim, DType activations,
                       DType cache);

}  // namespace tutti::cuda
