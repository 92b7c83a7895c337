#include "runtime/fp8_weights.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace tutti {
namespace {

int64_t blocks(int64_t n) { return (n + Fp8Scales::kBlock - 1) / Fp8Scales::kBlock; }

}  // namespace

Fp8Scales::Fp8Scales(Tensor values, const Parameter& parameter)
    : values_(std::move(values)), by_blocks_(values_.rank() == 2), rows_(parameter.local_rows()) {
  if (parameter.shard.dim == ShardRule::Dim::kRows) row_ = parameter.shard.range.begin;
  if (parameter.shard.dim == ShardRule::Dim::kColumns) column_ = parameter.shard.range.begin;
}

Tensor Fp8Scales::of_rows() const {
  CHECK(!by_blocks_);
  return values_.numel() == 1 ? values_ : values_.slice(0, row_, rows_);
}

Fp8Scales read_fp8_scales(const ModelSource& source, const Parameter& parameter) {
  const std::string weight = source.file_name(parameter.name);
  const Tensor* found = nullptr;
  std::string name;
  for (const char* suffix : {"_scale", "_scale_inv"}) {
    if (found == nullptr) found = source.checkpoint->find(name = weight + suffix);
  }
  if (found == nullptr) {
    throw IoError(source.path + ": tensor " + weight + " is F8_E4M3, but neither " + weight + "_scale nor " + weight +
                  "_scale_inv is there: FP8 weights without scales mean nothing");
  }
  const int64_t count = found->numel();
  const bool is_blocks = found->rank() == 2 && found->size(0) == blocks(parameter.rows) && found->size(1) == blocks(parameter.columns) &&
                         !(found->size(1) == 1 && found->size(0) == parameter.rows);
  const bool plain = found->dtype() == DType::kF32 || found->dtype() == DType::kBF16 || found->dtype() == DType::kF16;
  if (!plain || !found->is_contiguous() || (count != 1 && count != parameter.rows && !is_blocks)) {
    throw IoError(source.path + ": tensor " + name + " is " + found->describe() + ", expected one scale, one for each of " +
                  std::to_string(parameter.rows) + " rows, or [" + std::to_string(blocks(parameter.rows)) + ", " +
                  std::to_string(blocks(parameter.columns)) + "] for blocks of 128");
  }
  Tensor values = is_blocks && count != 1 ? Tensor::empty({found->size(0), found->size(1)}, DType::kF32) : Tensor::empty({count}, DType::kF32);
  dequantize_row(found->dtype(), found->data(), count, values.data_as<float>());
  return {std::move(values), parameter};
}

Tensor widen_fp8(const Tensor& piece, const Fp8Scales& scales, DType dtype, ThreadPool& pool) {
  const int64_t columns = piece.size(1);
  Tensor out = Tensor::empty({piece.size(0), columns}, dtype);
  pool.parallel_for(piece.size(0), 16, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t r = begin; r < end; ++r) {
      dequantize_row(piece.dtype(), piece.row<std::byte>(r), columns, row.data());
      for (int64_t c = 0; c < columns; ++c) row[static_cast<size_t>(c)] *= scales.at(r, c);
      quantize_row(row.data(), columns, dtype, out.row<std::byte>(r));
    }
  });
  return out;
}

}  // namespace tutti
