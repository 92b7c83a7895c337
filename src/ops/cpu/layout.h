// The packed layout of weights and of the activations that meet them, shared by all instruction set levels. Written by
// pack.cc and the levels' prepare kernels, read by the levels' matrix kernels.
//
// A weight segment of `rows` output features is cut into panels of kPanelRows rows (the last one is filled with
// zeros), and inside a panel the rows are interleaved with k outermost:
//
//   plain types      [k / 2][32 rows][2]       BF16: a 32-bit lane holds k and k + 1
//                    [k][32 rows]              F32, F16 (k rounded up to even with zeros)
//   quantised types  units of 32 or 256 k; a unit holds scales, then codes (formats/planes.h)
//
// A vector lane is therefore one output feature and every output is one chain of additions in k order, whether one
// row is computed or a thousand: this is what makes the kernels row-invariant.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/half.h"

namespace tutti::cpu {

inline constexpr int kPanelRows = 32;  // output features of a panel
inline constexpr int kHalfRows = 16;   // codes are stored in two halves of 16 rows (one AMX tile, one 512-bit vector)
inline constexpr int kBlock = 32;      // elements that share an activation scale
inline constexpr int kQuads = kBlock / 4;
// Rows are computed in groups of this many, which bounds scratch memory; a multiple of every level's tile height.
inline constexpr int64_t kRowGroup = 240;
// k is walked in chunks of this many elements, so that a chunk of a panel stays in the first-level cache for all rows (of
// quantised weights each level's own).
inline constexpr int64_t kPlainChunk = 256;

// Panels that few rows may read in turn, a little of each: memory gives more to several streams than to one.
inline constexpr int kPanelsInTurn = 4;

inline constexpr int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
inline constexpr int64_t num_panels(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

// Activations are kept in tiles of `mr` rows: as many of the level's full tiles as there are, then tiles of 8, 4, 2 and 1
// rows. Few heights keep the kernels few; bits do not depend on the height.
template <class Tag = Baseline>
inline constexpr int next_tile_rows(int64_t rows_left, int full_tile) {
  if (rows_left >= full_tile) return full_tile;
  int rows = 8;
  while (rows > 1 && (rows >= full_tile || rows > rows_left)) rows /= 2;
  return rows;
}

// Tiles of `rows` rows that share the fetching of the weights that come next: all of few, so that memory is busy while any
// of them is made.
template <class Tag = Baseline>
inline constexpr int64_t tiles_that_fetch(int64_t rows, int full_tile) {
  constexpr int64_t kMost = 8;
  const int64_t tiles = (rows + full_tile - 1) / full_tile;
  return tiles < kMost ? tiles : kMost;
}

// For plain weights a tile is F32 [k rounded up to even][mr].
//
// For BF16 weights at levels that round activations to bfloat16 a tile is int32 [k / 2][mr] (`amx`: [mr][k / 2]), each two
// bfloat16.
//
// For quantised weights a tile is a record for each block of 32 elements. A row's block has one float scale,
// max|x| / 127, and int8 codes rounded to the nearest even:
//
//   int8   codes[mr][32]
//   float  scale[mr]
//   int32  neg_sum[3][mr]   minus the sum of the codes: of all 32, of the first 16, of the last 16
//   float  sum[3][mr]       scale times the sum of the codes, same order
inline constexpr int64_t kQuantBytesPerRow = kBlock + 4 + 12 + 12;

inline constexpr int64_t float_row_bytes(int64_t k) { return round_up(k, 2) * static_cast<int64_t>(sizeof(float)); }
inline constexpr int64_t pair_row_bytes(int64_t k) { return round_up(k, 2) * 2; }
inline constexpr int64_t quant_row_bytes(int64_t k) { return k / kBlock * kQuantBytesPerRow; }

// A block of activations that cross between ranks (activation_codes.cc).
inline constexpr int64_t kCodeBlockBytes = static_cast<int64_t>(sizeof(float)) + kBlock;

}  // namespace tutti::cpu
