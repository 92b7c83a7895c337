// The CPU's entries of the kernel table: each cuts its work over the context's threads and calls the level's kernels.
// Work is cut evenly, by output panel first, so that a thread meets the same weights, in memory that it first touched,
// as long as all threads get on alike. Shapes are checked by ops.cc. Called by the rank's worker thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>

#include "ops/cpu/level.h"
#include "ops/kernel_table.h"

namespace tutti::cpu {

PackedWeight pack_weight(const Context& ctx, std::span<const Tensor> pieces);
void embedding(const Context& ctx, const ops::TokenIds& tokens, const PackedWeight& table, int64_t vocab_begin, const Tensor& out);
void linear(const Context& ctx, const ops::Input& x, const PackedWeight& w, const Tensor& bias, const Tensor& out);
void gate_up_silu(const Context& ctx, const ops::Input& x, const PackedWeight& w, const Tensor& out);
void rms_norm(const Context& ctx, const Tensor& x, const Tensor& weight, double eps, const Tensor& out);
void add_rms_norm(const Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& weight, double eps,
                  const Tensor& out);
void add(const Context& ctx, const Tensor& x, const Tensor& y);
void rope(const Context& ctx, const Tensor& x, const Tensor& positions, const Tensor& cos_sin, RopeLayout layout);
void write_kv(const Context& ctx, const Tensor& k, const Tensor& v, const AttentionMetadata& meta, const KVLayer& cache);
void rope_write_kv(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cos_sin, RopeLayout layout,
                   const AttentionMetadata& meta, const KVLayer& cache);
void paged_attention(const Context& ctx, const Tensor& q, const KVLayer& cache, const AttentionMetadata& meta,
                     const ops::AttentionParams& params, const Tensor& out);
void encode_activations(const Context& ctx, const Tensor& x, const Tensor& codes);
void decode_activations(const Context& ctx, const Tensor& codes, const Tensor& x);
void argmax(const Context& ctx, const Tensor& x, const Tensor& values, const Tensor& indices, int64_t first);
void best_of_parts(const Context& ctx, const Tensor& parts, const Tensor& values, const Tensor& indices);
void gather_rows(const Context& ctx, const Tensor& x, const Tensor& rows, const Tensor& out);
void copy_with_table(const Context& ctx, const Tensor& from, const Tensor& to, const Tensor& table, const Tensor& to_table);

inline LevelKernels::PanelKernel panel_of(const LevelKernels& level, DType dtype) {
  return level.panel[static_cast<size_t>(dtype)];
}
inline const LevelKernels& level_of(const Context& ctx) { return *kernel_table(ctx).level; }

// Waking the threads costs about a microsecond: work below this many elementary steps stays on the calling thread.
inline constexpr int64_t kMinWorkPerThread = 16 * 1024;

// How many threads `work` elementary steps deserve.
inline int threads_for(const Context& ctx, int64_t work) {
  const int threads = ctx.pool == nullptr ? 1 : ctx.pool->size();
  return static_cast<int>(std::clamp<int64_t>(work / kMinWorkPerThread, 1, threads));
}

// job(begin, end) with [0, count) cut evenly over at most `threads` threads.
template <class Job>
void split_evenly(const Context& ctx, int threads, int64_t count, Job&& job) {
  threads = static_cast<int>(std::min<int64_t>(threads, count));
  if (threads <= 1) {
    if (count > 0) job(int64_t{0}, count);
    return;
  }
  const auto part = [&](int thread) {
    if (thread < threads) job(count * thread / threads, count * (thread + 1) / threads);
  };
  ctx.pool->run(std::cref(part));
}

// Scratch memory from the arena, given back when the op ends.
class Scratch {
 public:
  explicit Scratch(const Context& ctx) : arena_(*ctx.arena), mark_(arena_.mark()) {}
  ~Scratch() { arena_.rewind(mark_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  uint8_t* bytes(int64_t count) const { return arena_.allocate({count}, DType::kU8).data_as<uint8_t>(); }
  float* floats(int64_t count) const { return arena_.allocate({count}, DType::kF32).data_as<float>(); }

 private:
  Arena& arena_;
  size_t mark_;
};

// job(i) for 0 <= i < count. A thread takes the items of its own even share one after the other, then helps those that are
// not done with theirs: a thread that was kept from its core holds up nobody for more than an item.
template <class Job>
void deal_out(const Context& ctx, int threads, int64_t count, Job&& job) {
  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };
  constexpr int kMaxShares = 64;
  Share shares[kMaxShares];
  const auto num_shares = static_cast<int>(std::clamp<int64_t>(count, 1, std::min(threads, kMaxShares)));
  for (int s = 0; s < num_shares; ++s) {
    shares[s].next.store(count * s / num_shares, std::memory_order_relaxed);
    shares[s].end = count * (s + 1) / num_shares;
  }
  split_evenly(ctx, threads, threads, [&](int64_t thread, int64_t) {
    for (int s = 0; s < num_shares; ++s) {
      Share& share = shares[(thread + s) % num_shares];
      for (int64_t i; (i = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;) job(i);
    }
  });
}

}  // namespace tutti::cpu
