#include "ops/cuda/attention.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <string>

#include "base/check.h"

namespace tutti::cuda {
namespace {

constexpr std::array kDims = {64, 96, 128, 192, 256};
constexpr int kBlocksPerSM = 2;  // that decode wants: as many as fit

int padded_dim(int64_t head_dim) {
  for (int dim : kDims) {
    if (head_dim <= dim && head_dim % 8 == 0) return dim;
  }
  throw ConfigError("attention on CUDA: head_dim is " + std::to_string(head_dim) + ", expected a multiple of 8 up to 256");
}

// Depends on the number of sequences, not on their lengths, so that a captured graph stays right as they grow.
void choose_splits(const Context& ctx, int64_t blocks, AttentionArgs& a) {
  const auto most = static_cast<int>(std::clamp<int64_t>(kBlocksPerSM * ctx.cuda->num_sms() / blocks, 1, kMaxSplits));
  if (ctx.cuda->capability() < 90) {
    a.splits = most;
    a.cluster = 1;
  } else if (blocks <= kShallowSlots) {
    a.cluster = std::min(static_cast<int>(std::bit_floor(static_cast<unsigned>(most))), kMaxCluster);
    a.splits = most / a.cluster * a.cluster;
  } else {
    // One cluster for each sequence and head. Larger ones do not fill the GPU: some of as many as fit would come after the others.
    a.splits = a.cluster = most <= 2 ? most : std::clamp(3 * most / 4, 2, kMaxCluster);
  }
}

}  // namespace

void paged_attention(const Context& ctx, const Tensor& q, const KVLayer& cache, const AttentionMetadata& meta,
                     const ops::AttentionParams& params, const Tensor& out) {
  if (q.numel() == 0 || meta.num_seqs == 0) return;
  const int64_t head_dim = q.size(2);
  const int dim = padded_dim(head_dim);
  CHECK_EQ(q.stride(1), head_dim);
  CHECK_EQ(out.stride(1), head_dim);
  AttentionArgs a{};
  a.q = q.data();
  a.q_stride = q.stride(0);
  a.out = out.data();
  a.out_stride = out.stride(0);
  a.keys = cache.keys.data();
  a.values = cache.values.data();
  a.query_start = meta.query_start.data_as<int32_t>();
  a.seq_lens = meta.seq_lens.data_as<int32_t>();
  a.block_table = meta.block_table.data_as<int32_t>();
  a.table_stride = meta.block_table.stride(0);
  a.num_seqs = meta.num_seqs;
  a.num_kv_heads = static_cast<int>(cache.keys.size(1));
  a.group = static_cast<int>(q.size(1)) / a.num_kv_heads;
  a.head_dim = static_cast<int>(head_dim);
  a.block_size = static_cast<int>(cache.block_size());
  a.swizzled = cache_is_swizzled(cache);
  const auto size = static_cast<unsigned>(a.block_size);
  a.block_shift = std::has_single_bit(size) ? std::countr_zero(size) : -1;
  a.window = static_cast<int>(params.sliding_window);
  a.scale = static_cast<float>(params.scale * std::numbers::log2e);
  a.soft_cap = static_cast<float>(params.soft_cap);

  if (ctx.cuda->batch_invariant()) {  // prefill's kernel takes every row's keys in one order
    a.no_decode = true;
    return attention_prefill(ctx, a, meta.num_tokens, static_cast<int>(meta.max_query_len), dim, q.dtype(), cache.keys.dtype());
  }
  const Scratch scratch(ctx);
  const int64_t tiles = int64_t{a.num_kv_heads} * ((a.group + kDecodeRows - 1) / kDecodeRows);
  const int64_t slots = tiles * a.num_seqs;
  choose_splits(ctx, slots, a);
  a.arrivals = ctx.cuda->counters();
  if (const int parts = a.splits / a.cluster; parts > 1) {
    CHECK_LE(slots, CudaContext::kCounters);
    a.partial = scratch.floats(slots * parts * kDecodeRows * head_dim);
    a.stats = scratch.floats(slots * parts * kDecodeRows * 2);
  }
  // A step of single rows needs no prefill, and one without spare rows no decode.
  if (meta.max_query_len > 1) attention_prefill(ctx, a, meta.num_tokens, static_cast<int>(meta.max_query_len), dim, q.dtype(), cache.keys.dtype());
  if (meta.num_tokens < int64_t{meta.num_seqs} * std::max(meta.max_query_len, 1) || meta.max_query_len <= 1) {
    attention_decode(ctx, a, dim, q.dtype(), cache.keys.dtype());
  }
}

}  // namespace tutti::cuda
