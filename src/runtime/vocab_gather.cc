#include "runtime/vocab_gather.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "nn/forward_step.h"

namespace tutti {
namespace {

constexpr size_t kRowsAtOnce = 32;

// job(i, thread) for all i, each taken by the thread that is free.
template <typename Job>
void on_all_threads(const Context& ctx, size_t count, const Job& job) {
  if (count == 0) return;
  if (count == 1) {
    job(0, 0);
    return;
  }
  std::atomic<size_t> next{0};
  ctx.pool->run([&](int thread) {
    for (size_t i = next++; i < count; i = next++) job(i, thread);
  });
}

}  // namespace

VocabGather::VocabGather(Communicator& tp, std::vector<Range> vocab) : tp_(tp), vocab_(std::move(vocab)) {
  CHECK_EQ(static_cast<int>(vocab_.size()), tp.size());
  vocab_size_ = vocab_.back().end();
  widest_ = 0;
  for (const Range& part : vocab_) widest_ = std::max(widest_, part.count);
}

void VocabGather::whole_rows(const Context& ctx, const Tensor& logits, std::span<const int64_t> rows, const Visit& visit) {
  const auto size = static_cast<size_t>(vocab_size_);
  if (tp_.size() == 1) {
    on_all_threads(ctx, rows.size(), [&](size_t i, int thread) { visit(i, {logits.row<float>(rows[i]), size}, thread); });
    return;
  }
  for (size_t begin = 0; begin < rows.size(); begin += kRowsAtOnce) {
    const ArenaScope scratch(ctx);
    const auto chunk = rows.subspan(begin, std::min(kRowsAtOnce, rows.size() - begin));
    const Tensor whole = ctx.arena->allocate({static_cast<int64_t>(chunk.size()), vocab_size_}, DType::kF32);
    gather_chunk(ctx, logits, chunk, whole);
    on_all_threads(ctx, chunk.size(), [&](size_t i, int thread) {
      visit(begin + i, {whole.row<float>(static_cast<int64_t>(i)), size}, thread);
    });
  }
}

// Every rank sends pieces of the widest part's size: parts of the vocabulary may differ.
void VocabGather::gather_chunk(const Context& ctx, const Tensor& logits, std::span<const int64_t> rows, const Tensor& whole) {
  const auto num_rows = static_cast<int64_t>(rows.size());
  const Tensor parts = ctx.arena->allocate({tp_.size(), num_rows, widest_}, DType::kF32);
  const auto row_of = [&](int rank, int64_t row) { return parts.data_as<float>() + (rank * num_rows + row) * widest_; };
  const int64_t own = vocab_[static_cast<size_t>(tp_.rank())].count;
  for (int64_t i = 0; i < num_rows; ++i) {
    float* out = row_of(tp_.rank(), i);
    std::memcpy(out, logits.row<float>(rows[static_cast<size_t>(i)]), static_cast<size_t>(own) * sizeof(float));
    std::fill(out + own, out + widest_, 0.0f);
  }
  tp_.all_gather(row_of(tp_.rank(), 0), parts.data(), static_cast<size_t>(num_rows * widest_) * sizeof(float));
  for (int rank = 0; rank < tp_.size(); ++rank) {
    const Range& part = vocab_[static_cast<size_t>(rank)];
    for (int64_t i = 0; i < num_rows; ++i) {
      std::memcpy(whole.row<float>(i) + part.begin, row_of(rank, i), static_cast<size_t>(part.count) * sizeof(float));
    }
  }
}

std::vector<std::vector<Candidate>> VocabGather::best(const Context& ctx, const Tensor& logits, std::span<const int64_t> rows,
                                                      int32_t count) {
  static_assert(sizeof(Candidate) == 8);
  const Range& own = vocab_[static_cast<size_t>(tp_.rank())];
  const auto num_rows = static_cast<int64_t>(rows.size());
  const auto width = static_cast<size_t>(num_rows * count);
  constexpr Candidate kNone = {-std::numeric_limits<float>::infinity(), std::numeric_limits<int32_t>::max()};
  std::vector<Candidate> all(width * static_cast<size_t>(tp_.size()), kNone);
  Candidate* mine = all.data() + width * static_cast<size_t>(tp_.rank());
  ctx.pool->parallel_for(num_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = logits.row<float>(rows[static_cast<size_t>(i)]);
      const auto found = best_candidates({row, static_cast<size_t>(own.count)}, count, static_cast<int32_t>(own.begin));
      std::copy(found.begin(), found.end(), mine + i * count);
    }
  });
  tp_.all_gather(mine, all.data(), width * sizeof(Candidate));
  std::vector<std::vector<Candidate>> result(rows.size());
  for (int64_t i = 0; i < num_rows; ++i) {
    auto& merged = result[static_cast<size_t>(i)];
    for (int rank = 0; rank < tp_.size(); ++rank) {
      const Candidate* from = all.data() + width * static_cast<size_t>(rank) + i * count;
      merged.insert(merged.end(), from, from + count);
    }
    std::sort(merged.begin(), merged.end(), better);
    while (merged.size() > static_cast<size_t>(count) || merged.back().id == kNone.id) merged.pop_back();
  }
  return result;
}

}  // namespace tutti
