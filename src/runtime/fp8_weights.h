// FP8 matrices as checkpoints have them (compressed-tensors, "fp8"): E4M3 elements, and beside "X.weight" a tensor of scales,
// "X.weight_scale" or "X.weight_scale_inv": one for the matrix, one for each row, or one for each block of 128 x 128.
#pragma once

#include "base/thread_pool.h"
#include "nn/parameter.h"
#include "runtime/model_source.h"

namespace tutti {

class Fp8Scales {
 public:
  // F32 values: [1], [rows of the whole matrix] or [rows / 128, columns / 128], rounded up.
  Fp8Scales(Tensor values, const Parameter& parameter);

  bool by_blocks() const { return by_blocks_; }
  // Of this rank's rows: F32 [local_rows] or [1]. Not by blocks.
  Tensor of_rows() const;
  // Of an element of this rank's part.
  float at(int64_t row, int64_t column) const {
    const float* values = values_.data_as<float>();
    if (!by_blocks_) return values[values_.numel() == 1 ? 0 : row_ + row];
    return values[(row_ + row) / kBlock * values_.size(1) + (column_ + column) / kBlock];
  }
  static constexpr int64_t kBlock = 128;

 private:
  Tensor values_;
  bool by_blocks_;
  int64_t row_ = 0;  // where this rank's part begins
  int64_t column_ = 0;
  int64_t rows_;
};

// Throws IoError when the scales are missing or of another shape.
Fp8Scales read_fp8_scales(const ModelSource& source, const Parameter& parameter);

// This rank's part with its scales in, as F32, F16 or BF16.
Tensor widen_fp8(const Tensor& piece, const Fp8Scales& scales, DType dtype, ThreadPool& pool);

}  // namespace tutti
