// paged_attention(): the query rows of a sequence and a KV head are cut into blocks of kAttentionRows, the keys into
// splits of kKeySplit positions. Each split gives a partial result; partial results are merged in the order of the
// splits. One thread may do all splits of a block, or several may share them when there are few blocks and long
// sequences, for as many blocks at once as the arena has room for partial results: the bits are the same.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "ops/cpu/drivers.h"
#include "ops/cpu/layout.h"

namespace tutti::cpu {
namespace {

struct Block {
  int seq;
  int64_t head;       // KV head
  int64_t first_row;  // query row of the sequence and head: token * group + query head
  int64_t rows;
  int64_t first_split, last_split;  // those that a row of the block sees
};

class Attention {
 public:
  Attention(const Context& ctx, const Tensor& q, const KVLayer& cache, const AttentionMetadata& meta,
            const ops::AttentionParams& params, const Tensor& out)
      : ctx_(ctx), level_(level_of(ctx)), q_(q), cache_(cache), meta_(meta), params_(params), out_(out), scratch_(ctx),
        head_dim_(q.size(2)), padded_(round_up(head_dim_, kPanelRows)), kv_heads_(cache.keys.size(1)),
        group_(q.size(1) / kv_heads_), threads_(ctx.pool == nullptr ? 1 : ctx.pool->size()) {
    CHECK_EQ(head_dim_ % 2, 0);
    CHECK_LE(head_dim_, kMaxHeadDim);
  }

  void run() {
    list_blocks();
    // A quarter of a split's work is worth a thread's wake-up.
    threads_ = threads_for(ctx_, work_);
    per_thread_floats_ = attention_scratch_floats(head_dim_) + kAttentionRows * (head_dim_ + 2 * padded_ + 4);
    threads_ = static_cast<int>(std::clamp<int64_t>(room() / 2 / per_thread_floats_, 1, threads_));
    float* buffers = scratch_.floats(per_thread_floats_ * threads_);
    const bool fit = std::all_of(blocks_.begin(), blocks_.end(), [&](const Block& b) { return partial_floats(b) <= room(); });
    if (threads_ > 1 && static_cast<int>(blocks_.size()) < 2 * threads_ && fit) {
      for (size_t first = 0; first < blocks_.size();) first = run_split(first, buffers);
    } else {
      // Blocks differ in length: dealt one by one, since nothing of a result depends on who computes it.
      std::atomic<size_t> next{0};
      split_evenly(ctx_, threads_, threads_, [&](int64_t thread, int64_t) {
        for (size_t i = next++; i < blocks_.size(); i = next++) run_block(blocks_[i], buffers + thread * per_thread_floats_);
      });
    }
  }

 private:
  struct Buffers {
    float *scratch, *q, *partial_out, *partial_max, *partial_sum, *out, *max, *sum;
  };
  Buffers carve(float* p) const {
    Buffers b;
    b.scratch = p;
    b.q = b.scratch + attention_scratch_floats(head_dim_);
    b.partial_out = b.q + kAttentionRows * head_dim_;
    b.out = b.partial_out + kAttentionRows * padded_;
    b.partial_max = b.out + kAttentionRows * padded_;
    b.partial_sum = b.partial_max + kAttentionRows;
    b.max = b.partial_sum + kAttentionRows;
    b.sum = b.max + kAttentionRows;
    return b;
  }

  // Floats that the arena has left, without what alignment may take.
  int64_t room() const {
    constexpr size_t kAlignment = 4096;
    const size_t used = std::min(ctx_.arena->capacity(), ctx_.arena->mark() + kAlignment);
    return static_cast<int64_t>((ctx_.arena->capacity() - used) / sizeof(float));
  }
  int64_t partial_floats(const Block& b) const { return (b.last_split - b.first_split + 1) * b.rows * (padded_ + 2); }

  int64_t query_begin(int seq) const { return meta_.query_start.data_as<int32_t>()[seq]; }
  int64_t first_position(int seq) const {
    return meta_.seq_lens.data_as<int32_t>()[seq] - (query_begin(seq + 1) - query_begin(seq));
  }

  void list_blocks() {
    for (int seq = 0; seq < meta_.num_seqs; ++seq) {
      const int64_t rows = (query_begin(seq + 1) - query_begin(seq)) * group_, first = first_position(seq);
      CHECK_GE(first, 0);
      CHECK_LE(meta_.seq_lens.data_as<int32_t>()[seq], meta_.block_table.size(1) * cache_.block_size());
      for (int64_t head = 0; head < kv_heads_; ++head) {
        for (int64_t r = 0; r < rows; r += kAttentionRows) {
          Block b{.seq = seq, .head = head, .first_row = r, .rows = std::min(kAttentionRows, rows - r)};
          const int64_t low = first + r / group_, high = first + (r + b.rows - 1) / group_;
          b.first_split = params_.sliding_window > 0 ? std::max<int64_t>(0, low - params_.sliding_window + 1) / kKeySplit : 0;
          b.last_split = high / kKeySplit;
          work_ += (high + 1 - b.first_split * kKeySplit) * b.rows * head_dim_ / 4;
          blocks_.push_back(b);
        }
      }
    }
  }

  float* row_of(const Tensor& t, const Block& b, int64_t r) const {
    const int64_t row = b.first_row + r;
    return t.row<float>(query_begin(b.seq) + row / group_) + (b.head * group_ + row % group_) * t.stride(1);
  }

  // The block's queries, scaled, as tiles of the plain matrix kernel.
  void load_queries(const Block& b, float* tiles) const {
    const auto scale = static_cast<float>(params_.scale);
    for (int64_t r0 = 0; r0 < b.rows;) {
      const int64_t rows = next_tile_rows<>(b.rows - r0, level_.float_tile_rows);
      for (int64_t r = 0; r < rows; ++r) {
        const float* source = row_of(q_, b, r0 + r);
        for (int64_t d = 0; d < head_dim_; ++d) tiles[r0 * head_dim_ + d * rows + r] = source[d] * scale;
      }
      r0 += rows;
    }
  }

  void run_one_split(const Block& b, int64_t split, const Buffers& buffers, float* max, float* sum, float* out) const {
    const auto head_bytes = static_cast<int64_t>(dtype_bytes(cache_.keys.dtype(), cache_.block_size() * head_dim_));
    const AttentionSplit args{.q = buffers.q,
                              .rows = b.rows,
                              .head_dim = head_dim_,
                              .group = group_,
                              .first_row = b.first_row,
                              .first_position = first_position(b.seq),
                              .begin = split * kKeySplit,
                              .end = std::min<int64_t>((split + 1) * kKeySplit, meta_.seq_lens.data_as<int32_t>()[b.seq]),
                              .seq_len = meta_.seq_lens.data_as<int32_t>()[b.seq],
                              .sliding_window = params_.sliding_window,
                              .soft_cap = static_cast<float>(params_.soft_cap),
                              .keys = cache_.keys.data_as<uint8_t>() + b.head * head_bytes,
                              .values = cache_.values.data_as<uint8_t>() + b.head * head_bytes,
                              .block_stride = kv_heads_ * head_bytes,
                              .block_size = cache_.block_size(),
                              .block_table = meta_.block_table.row<int32_t>(b.seq),
                              .max = max,
                              .sum = sum,
                              .out = out,
                              .scratch = buffers.scratch};
    const DType type = cache_.keys.dtype();
    (type == DType::kQ8_0 ? level_.attend_q8 : type == DType::kBF16 ? level_.attend_bf16 : level_.attend_f32)(args);
  }

  void start(const Block& b, const Buffers& buffers) const {
    std::fill_n(buffers.max, b.rows, -INFINITY);
    std::fill_n(buffers.sum, b.rows, 0.0f);
    std::fill_n(buffers.out, b.rows * padded_, 0.0f);
  }
  void merge(const Block& b, const Buffers& buffers, const float* max, const float* sum, const float* out) const {
    for (int64_t r = 0; r < b.rows; ++r) {
      level_.merge_split(padded_, max[r], sum[r], out + r * padded_, buffers.max + r, buffers.sum + r, buffers.out + r * padded_);
    }
  }
  void finish(const Block& b, const Buffers& buffers) const {
    for (int64_t r = 0; r < b.rows; ++r) {
      float* target = row_of(out_, b, r);
      for (int64_t d = 0; d < head_dim_; ++d) target[d] = buffers.out[r * padded_ + d] / buffers.sum[r];
    }
  }

  void run_block(const Block& b, float* memory) const {
    const Buffers buffers = carve(memory);
    load_queries(b, buffers.q);
    start(b, buffers);
    for (int64_t split = b.first_split; split <= b.last_split; ++split) {
      run_one_split(b, split, buffers, buffers.partial_max, buffers.partial_sum, buffers.partial_out);
      merge(b, buffers, buffers.partial_max, buffers.partial_sum, buffers.partial_out);
    }
    finish(b, buffers);
  }

  // Few blocks: from the first one on as many as there is room for. Their splits are dealt to the threads, then they are merged.
  // Returns the block behind them.
  size_t run_split(size_t first, float* memory) {
    struct Item {
      const Block* block;
      int64_t split;
      float* result;  // [rows] maxima, [rows] sums, [rows, padded]
    };
    const Scratch scratch(ctx_);
    std::vector<Item> items;
    size_t end = first;
    for (; end < blocks_.size() && partial_floats(blocks_[end]) <= room(); ++end) {
      const Block& b = blocks_[end];
      float* results = scratch.floats(partial_floats(b));
      for (int64_t split = b.first_split; split <= b.last_split; ++split, results += b.rows * (padded_ + 2)) items.push_back({&b, split, results});
    }
    CHECK_GT(end, first);
    std::atomic<size_t> next{0};
    split_evenly(ctx_, threads_, threads_, [&](int64_t thread, int64_t) {
      const Buffers buffers = carve(memory + thread * per_thread_floats_);
      for (size_t i = next++; i < items.size(); i = next++) {
        const Item& item = items[i];
        load_queries(*item.block, buffers.q);
        run_one_split(*item.block, item.split, buffers, item.result, item.result + item.block->rows,
                      item.result + 2 * item.block->rows);
      }
    });
    const Buffers buffers = carve(memory);
    size_t i = 0;
    for (size_t at = first; at < end; ++at) {
      const Block& b = blocks_[at];
      start(b, buffers);
      for (; i < items.size() && items[i].block == &b; ++i) {
        const float* result = items[i].result;
        merge(b, buffers, result, result + b.rows, result + 2 * b.rows);
      }
      finish(b, buffers);
    }
    return end;
  }

  const Context& ctx_;
  const LevelKernels& level_;
  const Tensor& q_;
  const KVLayer& cache_;
  const AttentionMetadata& meta_;
  const ops::AttentionParams& params_;
  const Tensor& out_;
  Scratch scratch_;
  const int64_t head_dim_, padded_, kv_heads_, group_;
  int threads_;
  int64_t work_ = 0;  // in units of threads_for()
  int64_t per_thread_floats_ = 0;
  std::vector<Block> blocks_;
};

}  // namespace

void paged_attention(const Context& ctx, const Tensor& q, const KVLayer& cache, const AttentionMetadata& meta,
                     const ops::AttentionParams& params, const Tensor& out) {
  Attention(ctx, q, cache, meta, params, out).run();
}

}  // namespace tutti::cpu
