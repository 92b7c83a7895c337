// A second code for activations that one scale for 32 elements serves badly. Where a block's largest element is far above its
// row, the rounding of its 31 others is that coarse, too, and such blocks make nearly all of the error of a product: a
// normed hidden state has a few channels like that. Their rounding errors are made codes again, and the blocks of weights
// that meet them are multiplied once more. In SmolLM2 18% of the blocks bring most of what 16 bits would
// (tests/golden/README.md); of normally distributed rows hardly any block is far enough out.
//
// Whether a block has second codes depends on its row alone, and a row without adds zero: products stay row-invariant.
#pragma once

#include "ops/cpu/drivers.h"

namespace tutti::cpu {

// Of a group of rows, beside the tiles that hold their first codes (layout.h), tile by tile.
class Outliers {
 public:
  // Only weights of these types are precise enough to show it.
  static bool matter_to(DType weight) { return weight == DType::kQ8_0; }

  Outliers(const Scratch& scratch, int64_t max_rows, int64_t k);

  // The tile of `rows` rows of x, whose first codes are in `tile`, is the group's at `row`. Any thread, each tile once.
  void prepare(const LevelKernels& level, const float* x, int64_t stride, const uint8_t* tile, int rows, int64_t row);

  // c [rows, 32] += the products of the second codes of rows [row, row + rows) with a panel of Q8_0 weights.
  void add(const LevelKernels& level, const uint8_t* panel, int64_t row, int64_t rows, float* c, int64_t ldc) const;

 private:
  int64_t k_, blocks_of_row_;
  int32_t* tile_rows_;   // [row]: of the tile that begins there
  int32_t* counts_;      // [row]: blocks with second codes of the tile that begins there
  int32_t* blocks_;      // [row][blocks_of_row_]: which, ascending
  uint8_t* far_;         // [row][blocks_of_row_]: is this row's block one?
  uint8_t* records_;     // [row][quant_row_bytes(k)]: quantised tiles of the errors of those blocks
};

}  // namespace tutti::cpu
