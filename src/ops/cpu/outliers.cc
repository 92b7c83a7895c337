#include "ops/cpu/outliers.h"

#include "base/check.h"
#include "ops/cpu/layout.h"

namespace tutti::cpu {
namespace {

// A block's largest element against the root mean square of its row. Of normally distributed rows 1 block in 70 is beyond.
constexpr float kFar = 3.5f;

constexpr int kMostTileRows = 16;  // of any level

}  // namespace

Outliers::Outliers(const Scratch& scratch, int64_t max_rows, int64_t k) : k_(k), blocks_of_row_(k / kBlock) {
  const auto integers = [&](int64_t count) { return reinterpret_cast<int32_t*>(scratch.bytes(count * 4)); };
  tile_rows_ = integers(max_rows);
  counts_ = integers(max_rows);
  blocks_ = integers(max_rows * blocks_of_row_);
  far_ = scratch.bytes(max_rows * blocks_of_row_);
  records_ = scratch.bytes(max_rows * quant_row_bytes(k));
}

void Outliers::prepare(const LevelKernels& level, const float* x, int64_t stride, const uint8_t* tile, int rows, int64_t row) {
  CHECK_LE(rows, kMostTileRows);
  const auto codes_of = [&](int64_t block, int r) {
    return reinterpret_cast<const int8_t*>(tile + block * rows * kQuantBytesPerRow) + r * kBlock;
  };
  const auto scale_of = [&](int64_t block, int r) {
    return reinterpret_cast<const float*>(tile + (block * rows * kQuantBytesPerRow + rows * kBlock))[r];
  };
  for (int r = 0; r < rows; ++r) {
    float sum = 0;
    for (int64_t b = 0; b < blocks_of_row_; ++b) {
      const int8_t* codes = codes_of(b, r);
      int squares = 0;
      for (int i = 0; i < kBlock; ++i) squares += codes[i] * codes[i];
      sum += scale_of(b, r) * scale_of(b, r) * static_cast<float>(squares);
    }
    const float limit = kFar * kFar / (127.0f * 127.0f) * sum / static_cast<float>(k_);
    for (int64_t b = 0; b < blocks_of_row_; ++b) far_[(row + r) * blocks_of_row_ + b] = scale_of(b, r) * scale_of(b, r) > limit;
  }
  int32_t* blocks = blocks_ + row * blocks_of_row_;
  uint8_t* record = records_ + row * quant_row_bytes(k_);
  int32_t count = 0;
  for (int64_t b = 0; b < blocks_of_row_; ++b) {
    const auto far = [&](int r) { return far_[(row + r) * blocks_of_row_ + b] != 0; };
    float errors[kMostTileRows][kBlock];
    bool any = false;
    for (int r = 0; r < rows; ++r) any |= far(r);
    if (!any) continue;
    for (int r = 0; r < rows; ++r) {
      const float *values = x + r * stride + b * kBlock, scale = scale_of(b, r);
      for (int i = 0; i < kBlock; ++i) errors[r][i] = far(r) ? values[i] - static_cast<float>(codes_of(b, r)[i]) * scale : 0.0f;
    }
    level.quant_tile(errors[0], kBlock, rows, kBlock, record);
    record += rows * kQuantBytesPerRow;
    blocks[count++] = static_cast<int32_t>(b);
  }
  tile_rows_[row] = rows;
  counts_[row] = count;
}

void Outliers::add(const LevelKernels& level, const uint8_t* panel, int64_t row, int64_t rows, float* c, int64_t ldc) const {
  for (const int64_t end = row + rows; row < end; row += tile_rows_[row]) {
    if (counts_[row] != 0) {
      level.q8_blocks(panel, blocks_ + row * blocks_of_row_, counts_[row], records_ + row * quant_row_bytes(k_), tile_rows_[row],
                      c, ldc);
    }
    c += tile_rows_[row] * ldc;
  }
}

}  // namespace tutti::cpu
