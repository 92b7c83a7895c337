#include "runtime/device_step.h"

#include <algorithm>

#include "ops/cuda_context.h"
#include "ops/ops.h"

namespace tutti {
namespace {

constexpr int64_t kPadding = 1024;  // between the tensors of the arena

}  // namespace

DeviceStep::DeviceStep(const Context& ctx, int64_t max_tokens, int64_t max_seqs, int64_t max_blocks)
    : ctx_(ctx), max_seqs_(max_seqs) {
  // ids, positions and logit rows; slots; query starts and lengths, and draws, of as many sequences as rows at most
  const auto fixed = static_cast<size_t>(max_tokens * (3 * 4 + 8 + 2 * 4 + static_cast<int64_t>(sizeof(ops::TokenDraw))) + kPadding);
  const auto table = static_cast<size_t>(std::max(max_seqs * max_blocks, max_tokens) * 4);
  for (Slot& slot : slots_) {
    slot.inputs = std::make_unique<Arena>(cuda::allocate_pinned(fixed + table));
    slot.staged = Buffer::allocate(fixed + table, ctx.device);
    slot.answers = cuda::allocate_pinned(static_cast<size_t>(max_seqs) * 8);
  }
  inputs_ = Buffer::allocate(fixed, ctx.device);
  block_table_ = Tensor::zeros({max_seqs, max_blocks}, DType::kI32, ctx.device);
  fence_ = Tensor::zeros({1}, DType::kI32, ctx.device);
  const Tensor answers = Tensor::zeros({2 * max_seqs}, DType::kI32, ctx.device);
  tokens_ = answers.slice(0, 0, max_seqs);
  auto owner = std::make_shared<Tensor>(answers);
  values_ = Tensor::view(answers.data_as<int32_t>() + max_seqs, {max_seqs}, DType::kF32, ctx.device, std::move(owner));
}

Arena& DeviceStep::next_inputs() {
  current_ = (current_ + 1) % kMaxSteps;
  Slot& slot = slots_[current_];
  if (slot.used) slot.uploaded.wait();
  slot.inputs->reset();
  return *slot.inputs;
}

Tensor DeviceStep::on_device(const Tensor& host) const {
  CHECK_EQ(host.rank(), 1);
  const auto offset = host.data_as<std::byte>() - slots_[current_].inputs->data();
  CHECK(offset >= 0 && static_cast<size_t>(offset) + host.bytes() <= inputs_->bytes());
  return Tensor::view(inputs_->data() + offset, {host.size(0)}, host.dtype(), ctx_.device, inputs_);
}

StepInputs DeviceStep::upload(StepInputs host, bool for_graph) {
  void* stream = cuda_stream(*ctx_.cuda);
  const Tensor& table = host.meta.block_table;
  const int64_t rows = std::min(table.size(0), max_seqs_), width = table.size(1);
  CHECK_LE(width, block_table_.size(1));
  Slot& slot = slots_[current_];
  const std::byte* begin = slot.inputs->data();
  const int64_t fixed = table.data_as<std::byte>() - begin;
  if (slot.used) slot.taken.hold_back(copies_.get());
  cuda::copy_async(slot.staged->data(), begin, static_cast<size_t>(fixed) + static_cast<size_t>(rows * width) * sizeof(int32_t),
                   copies_.get());
  slot.uploaded.record(copies_.get());
  slot.uploaded.hold_back(stream);
  const Tensor narrow = Tensor::view(slot.staged->data() + fixed, {rows, width}, DType::kI32, ctx_.device);
  const auto words = [&](const Buffer& buffer) { return Tensor::view(buffer.data(), {fixed / 4}, DType::kI32, ctx_.device); };
  ops::copy_with_table(ctx_, words(*slot.staged), words(*inputs_), narrow, block_table_.slice(0, 0, rows).slice(1, 0, width));
  slot.taken.record(stream);
  slot.used = true;
  if (!for_graph) cuda::zero_async(fence_.data(), fence_.bytes(), stream);

  StepInputs inputs;
  inputs.logit_rows = std::move(host.logit_rows);
  inputs.ids = on_device(host.ids);
  inputs.logit_row_ids = on_device(host.logit_row_ids);
  inputs.draws = on_device(host.draws);
  AttentionMetadata& meta = inputs.meta;
  meta = host.meta;
  meta.query_start = on_device(host.meta.query_start);
  meta.seq_lens = on_device(host.meta.seq_lens);
  meta.positions = on_device(host.meta.positions);
  meta.slot_mapping = on_device(host.meta.slot_mapping);
  meta.block_table = block_table_;
  return inputs;
}

size_t DeviceStep::fetch(int64_t count) {
  CHECK_LE(count, max_seqs_);
  void* stream = cuda_stream(*ctx_.cuda);
  Slot& slot = slots_[current_];
  slot.count = static_cast<size_t>(count);
  // By a kernel: the copy engine comes later to it.
  const auto words = [&](void* data) { return Tensor::view(data, {2 * max_seqs_}, DType::kI32, ctx_.device); };
  const Tensor none = block_table_.slice(0, 0, 0);
  ops::copy_with_table(ctx_, words(tokens_.data()), words(slot.answers->data()), none, none);
  slot.fetched.record(stream);
  return current_;
}

void DeviceStep::begin_kernels() {
  if (!measures_idle_) return;
  timed_ = (timed_ + 1) % times_.size();
  slots_[current_].timed = timed_;
  times_[timed_].begun.record(cuda_stream(*ctx_.cuda));
}

void DeviceStep::end_kernels() {
  if (measures_idle_) times_[timed_].ended.record(cuda_stream(*ctx_.cuda));
}

DeviceStep::Answer DeviceStep::read(size_t ticket) {
  const Slot& slot = slots_[ticket];
  slot.fetched.wait();
  if (measures_idle_) {
    const Times& before = times_[(slot.timed + times_.size() - 1) % times_.size()];
    idle_us_.push_back(times_[slot.timed].begun.microseconds_since(before.ended));
  }
  const auto* tokens = reinterpret_cast<const int32_t*>(slot.answers->data());
  return {{tokens, slot.count}, {reinterpret_cast<const float*>(tokens + max_seqs_), slot.count}};
}

}  // namespace tutti
