#include "ops/cuda/upload.h"

#include <algorithm>

#include "ops/cuda/context.h"

namespace tutti::cuda {
namespace {

constexpr size_t kStageBytes = size_t{16} << 20;
constexpr size_t kPieceBytes = size_t{256} << 10;  // that a thread takes at once

}  // namespace

Upload::Upload() {
  for (Stage& stage : stages_) stage.memory = allocate_pinned(kStageBytes);
}

void Upload::rows(const Context& ctx, std::byte* to, int64_t rows, size_t row_bytes, const Fill& fill) {
  if (rows == 0 || row_bytes == 0) return;
  const auto rows_at_once = static_cast<int64_t>(std::max<size_t>(1, kStageBytes / row_bytes));
  const auto grain = static_cast<int64_t>(std::max<size_t>(1, kPieceBytes / row_bytes));
  for (int64_t begin = 0; begin < rows; begin += rows_at_once) {
    const int64_t count = std::min(rows_at_once, rows - begin);
    const size_t bytes = static_cast<size_t>(count) * row_bytes;
    Stage& stage = stages_[next_];
    next_ = (next_ + 1) % stages_.size();
    if (stage.used) stage.sent.wait();
    if (stage.memory->bytes() < bytes) stage.memory = allocate_pinned(bytes);  // one row is larger than a stage
    std::byte* memory = stage.memory->data();
    const auto job = [&](int64_t first, int64_t last) {
      fill(begin + first, last - first, memory + static_cast<size_t>(first) * row_bytes);
    };
    if (ctx.pool != nullptr) ctx.pool->parallel_for(count, grain, job);
    else job(0, count);
    copy_async(to + static_cast<size_t>(begin) * row_bytes, memory, bytes, ctx.cuda->stream());
    stage.sent.record(ctx.cuda->stream());
    stage.used = true;
  }
}

}  // namespace tutti::cuda
