#include "nn/residual.h"

namespace tutti {

Residual::Residual(const Context& ctx, Communicator& tp, int64_t num_tokens, int64_t hidden_size) : ctx_(ctx), tp_(tp) {
  hidden_ = ctx.arena->allocate({num_tokens, hidden_size}, ctx.activations);
  output_ = ctx.arena->allocate({num_tokens, hidden_size}, ctx.activations);
  normed_ = ctx.arena->allocate({num_tokens, hidden_size}, ctx.activations);
  if (!ctx.device.is_cpu()) squares_ = ctx.arena->allocate({num_tokens, ops::norm_parts(hidden_size)}, DType::kF32);
}

const Tensor& Residual::hidden() {
  if (owed_) {
    complete();
    ops::add(ctx_, hidden_, output_);
    owed_ = false;
  }
  return hidden_;
}

void Residual::complete() {
  if (partial_) tp_.all_reduce(output_.data(), output_.numel(), output_.dtype());
  partial_ = false;
}

// Sum, addition and norm in one kernel, where the communicator has one.
bool Residual::complete_with(const RMSNorm& norm) {
  if (!partial_ || hidden_.device().is_cpu()) return false;
  const SumAddNorm what{output_.data(),         hidden_.data(),   norm.weight().data_as<float>(), static_cast<float>(norm.eps()),
                        normed_.data(),         hidden_.size(0),  hidden_.size(1),                hidden_.dtype()};
  if (!tp_.all_reduce_add_norm(what)) return false;
  partial_ = owed_ = false;
  return true;
}

void Residual::add(const BlockOutput& block, const RMSNorm* next, const PackedWeight* reader) {
  CHECK(!owed_);
  ops::NormAhead ahead;
  if (next != nullptr && squares_.defined()) ahead = {next->weight(), normed_, squares_, reader};
  const Added added = block.projection.add_in_place(ctx_, block.input, hidden_, ahead);
  left_for_ = added == Added::kWithNormAhead ? next : nullptr;
  if (added != Added::kNot) return;
  block.projection.forward(ctx_, block.input, output_);
  owed_ = true;
  partial_ = block.projection.is_partial();
}

ops::Input Residual::norm(const RMSNorm& norm) {
  ops::Input input = owed_ ? ops::Input(normed(norm)) : ops::Input(hidden_, norm.weight(), norm.eps());
  input.keep_outliers = true;
  if (left_for_ == &norm) input.scaled = normed_, input.squares = squares_;
  return input;
}

const Tensor& Residual::normed(const RMSNorm& norm) {
  left_for_ = nullptr;  // its place is needed
  if (owed_ && complete_with(norm)) return normed_;
  if (owed_) {
    complete();
    ops::add_rms_norm(ctx_, hidden_, output_, norm.weight(), norm.eps(), normed_);
    owed_ = false;
  } else {
    norm.forward(ctx_, hidden_, normed_);
  }
  return normed_;
}

void Residual::keep_rows(const Tensor& rows) {
  if (rows.size(0) == hidden_.size(0)) return;  // all of them
  const auto gather = [&](const Tensor& from) {
    const Tensor kept = ctx_.arena->allocate({rows.size(0), from.size(1)}, from.dtype());
    ops::gather_rows(ctx_, from, rows, kept);
    return kept;
  };
  hidden_ = gather(hidden_);
  if (owed_) output_ = gather(output_);
  else output_ = output_.slice(0, 0, rows.size(0));
  // What a product left is kept: whether rows are all there are makes no difference to their bits.
  normed_ = left_for_ != nullptr ? gather(normed_) : normed_.slice(0, 0, rows.size(0));
  if (left_for_ != nullptr) squares_ = gather(squares_);
  else if (squares_.defined()) squares_ = squares_.slice(0, 0, rows.size(0));
}

}  // namespace tutti
