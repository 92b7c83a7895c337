#include "nn/output_projection.h"

#include <algorithm>
#include <cstring>

#include "comm/reduce.h"
#include "nn/forward_step.h"
#include "ops/ops.h"

namespace tutti {
namespace {

int64_t widest(const std::vector<Range>& ranges) {
  int64_t most = 0;
  for (const Range& r : ranges) most = std::max(most, r.count);
  return most;
}

constexpr int64_t kRowsAtOnce = 16;  // of one thread
constexpr float kLargestHalf = 65504.0f;

void copy_row(const Tensor& from, const Tensor& to, int64_t r) {
  const int64_t n = from.size(1);
  if (to.dtype() == from.dtype()) {
    std::memcpy(to.row<std::byte>(r), from.row<std::byte>(r), dtype_bytes(from.dtype(), n));
  } else if (from.dtype() == DType::kF16) {
    to_float(to.row<float>(r), from.row<uint16_t>(r), n, DType::kF16);
  } else {
    float* row = from.row<float>(r);
    for (int64_t i = 0; i < n; ++i) row[i] = std::clamp(row[i], -kLargestHalf, kLargestHalf);
    from_float(to.row<uint16_t>(r), row, n, DType::kF16);
  }
}

// Copies rows between tensors of the same shape, either of which may be a slice. From F32 to F16 numbers beyond the
// largest half become that, in `from` too.
void copy_rows(const Context& ctx, const Tensor& from, const Tensor& to) {
  const auto copy = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) copy_row(from, to, r);
  };
  if (ctx.pool == nullptr || from.size(0) <= kRowsAtOnce) return copy(0, from.size(0));
  ctx.pool->parallel_for(from.size(0), kRowsAtOnce, copy);
}

// Room for one equal piece of every rank: a rank's own rows first, then what it has less than the widest rank.
struct Pieces {
  Pieces(const Context& ctx, int ranks, int64_t piece_bytes)
      : bytes(piece_bytes),
        send(ctx.arena->allocate({piece_bytes}, DType::kU8)),
        all(ctx.arena->allocate({ranks * piece_bytes}, DType::kU8)) {}
  Tensor own(int64_t rows, int64_t columns, DType dtype) const { return Tensor::view(send.data(), {rows, columns}, dtype); }
  Tensor of(int rank, int64_t rows, int64_t columns, DType dtype) const {
    return Tensor::view(all.data_as<uint8_t>() + rank * bytes, {rows, columns}, dtype);
  }
  void gather(Communicator& tp) const { tp.all_gather(send.data(), all.data(), static_cast<size_t>(bytes)); }

  int64_t bytes;
  Tensor send;
  Tensor all;
};

}  // namespace

PartialSumProjection::PartialSumProjection(const BuildContext& build, const std::string& name, int64_t in_features,
                                           int64_t out_features, const std::vector<Range>& inputs, bool bias)
    : tp_(build.tp),
      even_(std::all_of(inputs.begin(), inputs.end(), [&](const Range& range) { return range.count == inputs[0].count; })),
      linear_(build, name, in_features, out_features, inputs[static_cast<size_t>(build.cut.rank)], bias) {}

Added PartialSumProjection::add_in_place(const Context& ctx, const Tensor& x, const Tensor& stream, const ops::NormAhead& ahead) const {
  if (tp_.size() == 1) return linear_.add_to(ctx, x, stream, ahead) ? Added::kWithNormAhead : Added::kPlain;
  // Every rank comes to the same answer: it has to.
  if (!even_ || !ops::sums_over_ranks(ctx, x, linear_.weight(), stream)) return Added::kNot;
  const cuda_ipc::IpcGroup* ranks = tp_.sum_in_kernel(stream.numel());
  if (ranks == nullptr) return Added::kNot;
  return linear_.add_to(ctx, x, stream, ahead, ranks) ? Added::kWithNormAhead : Added::kPlain;
}

GatheredProjection::GatheredProjection(const BuildContext& build, const std::string& name, int64_t in_features,
                                       int64_t out_features, std::vector<Range> inputs, bool bias)
    : tp_(build.tp),
      inputs_(std::move(inputs)),
      outputs_(build.cut.all_hidden),
      in_features_(in_features),
      linear_(build, {name}, in_features, out_features, build.cut.all_hidden[static_cast<size_t>(build.cut.rank)], bias) {
  CHECK_EQ(inputs_.size(), static_cast<size_t>(build.cut.size));
}

void GatheredProjection::forward(const Context& ctx, const Tensor& x, const Tensor& out) const {
  const ArenaScope scratch(ctx);
  if (tp_.size() == 1) {
    linear_.forward(ctx, x, out);
    round_outputs(ctx, out);
    return;
  }
  const Tensor part = ctx.arena->allocate({x.size(0), outputs_[static_cast<size_t>(tp_.rank())].count}, DType::kF32);
  {
    const ArenaScope inputs(ctx);
    const Tensor whole = ctx.arena->allocate({x.size(0), in_features_}, DType::kF32);
    gather_inputs(ctx, x, whole);
    linear_.forward(ctx, whole, part);
  }
  gather_outputs(ctx, part, out);
}

DType GatheredProjection::output_dtype(const Context& ctx) const {
  return ctx.device.is_cpu() && is_quantized(linear_.weight().segments[0].dtype) ? DType::kF16 : DType::kF32;
}

// What a gathering does to the numbers.
void GatheredProjection::round_outputs(const Context& ctx, const Tensor& out) const {
  if (output_dtype(ctx) == DType::kF32) return;
  const ArenaScope scratch(ctx);
  const Tensor halves = ctx.arena->allocate({out.size(0), out.size(1)}, DType::kF16);
  copy_rows(ctx, out, halves);
  copy_rows(ctx, halves, out);
}

void GatheredProjection::gather_inputs(const Context& ctx, const Tensor& x, const Tensor& whole) const {
  const bool codes = is_quantized(linear_.weight().segments[0].dtype);
  const auto row_bytes = [&](int64_t columns) {
    return codes ? ops::activation_code_bytes(columns) : columns * static_cast<int64_t>(sizeof(float));
  };
  const int64_t rows = x.size(0);
  const ArenaScope scratch(ctx);
  const Pieces pieces(ctx, tp_.size(), rows * row_bytes(widest(inputs_)));
  if (codes) {
    ops::encode_activations(ctx, x, pieces.own(rows, row_bytes(x.size(1)), DType::kU8));
  } else {
    copy_rows(ctx, x, pieces.own(rows, x.size(1), DType::kF32));
  }
  pieces.gather(tp_);
  for (int r = 0; r < tp_.size(); ++r) {
    const Range& range = inputs_[static_cast<size_t>(r)];
    const Tensor target = whole.slice(1, range.begin, range.count);
    if (codes) {
      ops::decode_activations(ctx, pieces.of(r, rows, row_bytes(range.count), DType::kU8), target);
    } else {
      copy_rows(ctx, pieces.of(r, rows, range.count, DType::kF32), target);
    }
  }
}

void GatheredProjection::gather_outputs(const Context& ctx, const Tensor& part, const Tensor& out) const {
  const int64_t rows = part.size(0);
  const DType dtype = output_dtype(ctx);
  const Pieces pieces(ctx, tp_.size(), static_cast<int64_t>(dtype_bytes(dtype, rows * widest(outputs_))));
  copy_rows(ctx, part, pieces.own(rows, part.size(1), dtype));
  pieces.gather(tp_);
  for (int r = 0; r < tp_.size(); ++r) {
    const Range& range = outputs_[static_cast<size_t>(r)];
    copy_rows(ctx, pieces.of(r, rows, range.count, dtype), out.slice(1, range.begin, range.count));
  }
}

std::unique_ptr<OutputProjection> make_output_projection(const BuildContext& build, const std::string& name,
                                                         int64_t in_features, int64_t out_features,
                                                         const std::vector<Range>& inputs, bool bias) {
  if (build.cut.output == OutputCut::kColumns) {
    return std::make_unique<PartialSumProjection>(build, name, in_features, out_features, inputs, bias);
  }
  return std::make_unique<GatheredProjection>(build, name, in_features, out_features, inputs, bias);
}

}  // namespace tutti
